"""An identity provider for tests: keys, their JWKS, tokens that they sign, and an address of keys.

Owns nothing of what a node believes. Needs the extra `jwt`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node.identity import JwtSettings
from node.users import User

ISSUER = "https://login.example.com"
AUDIENCE = "fifo"


@cache
def _rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, 2_048)


class SigningKey:
    """A key of a provider, by the algorithm of its signatures."""

    def __init__(self, kid: str | None, algorithm: str = "ES256") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: Any
        if algorithm == "ES256":
            self.private = ec.generate_private_key(ec.SECP256R1())
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = _rsa()

    def jwk(self, **changes: Any) -> dict[str, Any]:
        """The public key, as a JWKS has it."""
        made = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private.public_key())
        found = json.loads(made) if isinstance(made, str) else dict(made)
        found.pop("key_ops", None)
        named = {} if self.kid is None else {"kid": self.kid}
        return {**found, **named, "use": "sig", **changes}

    @property
    def pem(self) -> bytes:
        """The public key as text: what a forger would sign with as if it were a secret."""
        public: bytes = self.private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        return public

    def token(self, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of ann in the group billing, for an hour; a claim that is None is left out."""
        now_s = int(time.time())
        said: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "groups": ["billing"]}
        said |= {"iat": now_s, "exp": now_s + 3_600, **claims}
        named = {} if self.kid is None else {"kid": self.kid}
        made: str = jwt.encode(
            {key: value for key, value in said.items() if value is not None},
            self.private,
            algorithm=self.algorithm,
            headers={**named, **(headers or {})},
        )
        return made


def jwks(*keys: SigningKey | dict[str, Any]) -> bytes:
    """The document of these keys."""
    listed = [key.jwk() if isinstance(key, SigningKey) else key for key in keys]
    return json.dumps({"keys": listed}).encode()


BILLING = User("billing", declare=("*",), publish=("billing.*",), consume=("billing.*",))
OPERATORS = User("operators", operate=True, manage=("*",))


def settings(folder: Path, keys: str = "keys.json", **changes: Any) -> JwtSettings:
    """A `[jwt]` section with the groups billing and operators."""
    groups = changes.pop("groups", (BILLING, OPERATORS))
    return JwtSettings(folder, keys, ISSUER, AUDIENCE, groups=groups, **changes)


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def page(body: bytes, status: str = "200 OK", *more: str) -> Answer:
    """An answer with this body."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *more]
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        await writer.drain()

    return answer


class Address:
    """An address of keys: what it answers may change, and how often it was asked is counted."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            await self.answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def address(answer: Answer) -> AsyncIterator[Address]:
    """An address on loopback that gives this answer."""
    found = Address(answer)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(found.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
        yield found
    finally:
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
