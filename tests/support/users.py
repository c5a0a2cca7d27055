"""Users and certificates for tests: hashes that cost little, and a certificate made by openssl.

Owns nothing of what a user may do. A hash made here is cheaper than `fifo user hash` would make it,
and otherwise the same.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node.config import TlsSettings
from node.credentials import PasswordHash, hash_token
from node.users import FILE_TOKEN, Token, User

EVERYTHING = dict.fromkeys(("declare", "publish", "consume", "manage"), ("*",))


def cheap_hash(password: str) -> PasswordHash:
    """A hash that takes a few milliseconds."""
    salt = b"s" * 16
    key = hashlib.scrypt(password.encode(), salt=salt, n=1 << 14, r=1, p=1, dklen=32)
    return PasswordHash(14, 1, 1, salt, key)


def user(name: str, **fields: Any) -> User:
    """A user whose password is `NAME-password` and whose token is `NAME-token`."""
    token = Token(FILE_TOKEN, hash_token(f"{name}-token"))
    return User(name, cheap_hash(f"{name}-password"), (token,), **fields)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that signs itself, for these names; `ca` is what a client has to trust."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "cert.pem"

    @property
    def settings(self) -> TlsSettings:
        return TlsSettings(self.folder, client_cert="cert.pem", client_key="key.pem")


def certificate(folder: Path, names: str = "IP:127.0.0.1,DNS:localhost") -> Certificate:
    """Made anew; the test is skipped where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *(
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=fifo-test",
                "-addext",
                f"subjectAltName={names}",
            ),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )
    return Certificate(folder)
