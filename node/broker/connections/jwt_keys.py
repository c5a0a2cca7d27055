"""The public keys of an identity provider: read from a file or fetched, and kept.

Owns which keys of a JWKS are usable, the bounds of a fetch, and when there is another one: at the
start, every hour, a minute after one that failed, and where a token names a key that is not known,
at most once a minute. Keys that are known stay while their address does not answer. Must not know
tokens or users. Needs the extra `jwt`: only what has a [jwt] section imports it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import aiohttp
import jwt

from node.broker import limits
from node.identity import JwtSettings

logger = logging.getLogger(__name__)

_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("kty", "n", "e"),
    "EC": ("kty", "crv", "x", "y"),
    "OKP": ("kty", "crv", "x"),
}
"""The parts of a public key, by its type; a secret one (`oct`) is none, whatever it says."""

_ALGORITHMS: Final[Mapping[tuple[str, str | None], str]] = {
    ("RSA", None): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
}
"""The one algorithm of each type of key and curve: a token cannot choose another one."""

ALGORITHMS: Final = tuple(_ALGORITHMS.values())


class KeysUnusable(Exception):
    """The keys cannot be had, or there is none that is usable. One line, for people."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithm of its signatures; `digest`: of what makes it up."""

    kid: str | None
    algorithm: str
    digest: bytes
    public: Any = field(repr=False, compare=False)


Keys: TypeAlias = tuple[Key, ...]


# --- from bytes to keys ---------------------------------------------------------------------------


def read_keys(data: bytes) -> Keys:
    """The usable keys of a JWKS. Raises KeysUnusable."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise KeysUnusable('is no JWKS: a JSON object with a list "keys"')
    if len(listed) > limits.JWT_KEYS_MAX:
        raise KeysUnusable(f"has {len(listed)} keys, at most {limits.JWT_KEYS_MAX}")
    keys = tuple(key for each in listed if (key := _usable(each)) is not None)
    if not keys:
        text = f"has no usable key among {len(listed)}: keys of {', '.join(ALGORITHMS)} are"
        raise KeysUnusable(text)
    return keys


def _usable(given: Any) -> Key | None:
    """A key that signs by one of our algorithms; None for any other."""
    if not isinstance(given, dict) or given.get("use", "sig") != "sig":
        return None
    kind, kid = given.get("kty"), given.get("kid")
    if not isinstance(kind, str) or not (kid is None or isinstance(kid, str)):
        return None
    curve = given.get("crv") if kind != "RSA" else None
    algorithm = _ALGORITHMS.get((kind, curve)) if curve is None or type(curve) is str else None
    if algorithm is None or given.get("alg", algorithm) != algorithm:
        return None
    # Only what is public: a key that came with its private part verifies as well.
    members = {name: given.get(name) for name in _MEMBERS[kind]}
    if not all(isinstance(value, str) for value in members.values()):
        return None
    try:
        public = jwt.PyJWK(members, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and not _is_sound(public):
        return None
    digest = hashlib.sha256(json.dumps(members, sort_keys=True).encode()).digest()
    return Key(kid, algorithm, digest, public)


def _is_sound(public: Any) -> bool:
    """Whether an RSA key is neither weak nor costly."""
    bits: int = public.key_size
    exponent: int = public.public_numbers().e
    return limits.JWT_RSA_BITS_MIN <= bits <= limits.JWT_RSA_BITS_MAX and exponent < 1 << 32


# --- from an address to bytes ---------------------------------------------------------------------


async def fetch(settings: JwtSettings) -> Keys:
    """The keys as they are now, within a bounded time. Raises KeysUnusable, whose text names the
    file or the address."""
    try:
        if settings.is_url:
            data = await _fetched(settings)
        else:
            data = await asyncio.to_thread(_read_file, settings)
        return await asyncio.to_thread(read_keys, data)
    except KeysUnusable as error:
        raise KeysUnusable(f"{settings.keys}: {error}") from None


def _read_file(settings: JwtSettings) -> bytes:
    try:
        with settings.path.open("rb") as file:
            return _bounded(file.read(limits.JWT_KEYS_BYTES_MAX + 1))
    except OSError as error:
        raise KeysUnusable(f"cannot be read: {error.strerror}") from None


async def _fetched(settings: JwtSettings) -> bytes:
    """The bytes at the address: no redirect is followed, for where the keys are is for the
    configuration to say, and nothing is unpacked."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_path)
    except OSError as error:
        raise KeysUnusable(f"ca {settings.ca}: cannot be used: {error.strerror}") from None
    time_limit = aiohttp.ClientTimeout(total=limits.JWT_FETCH_SECONDS)
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    try:
        async with (
            aiohttp.ClientSession(timeout=time_limit, auto_decompress=False) as session,
            session.get(
                settings.keys, ssl=context, headers=headers, allow_redirects=False
            ) as answer,
        ):
            if answer.status != 200:
                raise KeysUnusable(f"answers {answer.status}, not the keys")
            data = b""
            async for piece in answer.content.iter_any():
                data = _bounded(data + piece)
            return data
    except TimeoutError:
        raise KeysUnusable(f"is not read within {limits.JWT_FETCH_SECONDS:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise KeysUnusable(f"does not answer: {error or type(error).__name__}") from None


def _bounded(data: bytes) -> bytes:
    if len(data) > limits.JWT_KEYS_BYTES_MAX:
        raise KeysUnusable(f"is longer than {limits.JWT_KEYS_BYTES_MAX} bytes")
    return data


# --- kept -----------------------------------------------------------------------------------------


class KeyRing:
    """The keys of a provider, and their fetches. `now` in seconds."""

    def __init__(
        self,
        settings: JwtSettings,
        *,
        now: Callable[[], float],
        read: Callable[[JwtSettings], Awaitable[Keys]] = fetch,
    ) -> None:
        self._settings = settings
        self._now = now
        self._read = read
        self._fetching: asyncio.Future[None] | None = None
        self._waiting: list[Callable[[], None]] = []
        self._asked_at = -math.inf
        self._due_at = -math.inf
        self.keys: Keys = ()
        self.problem: str | None = None
        """Why the last fetch failed; None where it did not."""
        self.revision = 0
        """Grows with each change of the keys."""

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The key that a token names; one that names none can only be of the only key there is."""
        fitting = [key for key in self.keys if key.algorithm == algorithm]
        if kid is not None:
            return next((key for key in fitting if key.kid == kid), None)
        return fitting[0] if len(fitting) == 1 else None

    def holds(self, digest: bytes) -> bool:
        """Whether a key is still one of them; before the first fetch, as far as is known."""
        return not self.revision or any(key.digest == digest for key in self.keys)

    def look(self) -> None:
        """Fetch the keys where that is due."""
        if self._now() >= self._due_at:
            self._fetch()

    def unknown(self, done: Callable[[], None]) -> bool:
        """A token names a key that is not known: call `done` after a fetch; False where there was
        one within the last minute, or too many wait."""
        recent = self._now() - self._asked_at < limits.JWT_UNKNOWN_KEY_SECONDS
        if (self._fetching is None and recent) or len(self._waiting) >= limits.JWT_WAITING_MAX:
            return False
        self._waiting.append(done)
        self._fetch()
        return True

    def _fetch(self) -> None:
        if self._fetching is None:
            self._asked_at = self._now()
            self._due_at = self._asked_at + limits.JWT_KEYS_SECONDS
            self._fetching = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            self._take(await self._read(self._settings))
        except KeysUnusable as error:
            self.problem = str(error)
            self._due_at = self._now() + limits.JWT_UNKNOWN_KEY_SECONDS
            logger.warning("event=jwt_keys_unread keys=%d reason=%s", len(self.keys), error)
        finally:
            self._fetching = None
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def _take(self, keys: Keys) -> None:
        self.problem = None
        if keys != self.keys:
            self.keys = keys
            self.revision += 1
            logger.info("event=jwt_keys keys=%d", len(keys))

    def close(self) -> None:
        """Give up a fetch: what waits for it gets no answer any more."""
        self._waiting.clear()
        if self._fetching is not None:
            self._fetching.cancel()
