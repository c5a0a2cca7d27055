"""Secrets as a configuration keeps them: hashed. Passwords by scrypt, tokens by SHA-256.

Owns the two text forms, how they are made and how a secret is compared with them. A password may be
guessed, so its hash is slow on purpose: `PasswordHash.matches` takes a fifth of a second, off
the event loop. A token is 256 random bits, which cannot be guessed. Must not know users.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass, field
from typing import Final

SCRYPT_LOG_N: Final = 15
SCRYPT_R: Final = 8
SCRYPT_P: Final = 3
"""Cost of a new hash: 32 MiB and about 0.2 s, the lightest that OWASP recommends."""

SCRYPT_MEMORY_BYTES_MAX: Final = 256 << 20
"""A hash that asks for more memory is refused: one log-in must not push a node out of memory."""

SALT_BYTES: Final = 16
KEY_BYTES: Final = 32

TOKEN_BYTES: Final = 32
"""Random bytes of a new token."""

SECRET_BYTES_MAX: Final = 1024
"""A longer password or token is refused unread."""

_SCRYPT: Final = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{1,88})\$([A-Za-z0-9+/]{1,88})"
)
_SHA256: Final = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """`$scrypt$ln=15,r=8,p=3$SALT$KEY`, as in the PHC string format."""

    log_n: int
    r: int
    p: int
    salt: bytes = field(repr=False)
    key: bytes = field(repr=False)

    def __str__(self) -> str:
        """The text form."""
        return (
            f"$scrypt$ln={self.log_n},r={self.r},p={self.p}"
            f"${_encoded(self.salt)}${_encoded(self.key)}"
        )

    def matches(self, secret: bytes) -> bool:
        """Whether this is the password. Blocks for as long as the hash is meant to cost."""
        return hmac.compare_digest(self._derive(secret), self.key)

    def _derive(self, secret: bytes) -> bytes:
        n = 1 << self.log_n
        return hashlib.scrypt(
            secret,
            salt=self.salt,
            n=n,
            r=self.r,
            p=self.p,
            dklen=KEY_BYTES,
            maxmem=128 * self.r * (n + self.p + 2),
        )


@dataclass(frozen=True, slots=True)
class TokenHash:
    """`sha256:HEX`."""

    digest: bytes = field(repr=False)

    def __str__(self) -> str:
        """The text form."""
        return f"sha256:{self.digest.hex()}"

    def matches(self, secret: bytes) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(hashlib.sha256(secret).digest(), self.digest)


def hash_password(password: str) -> PasswordHash:
    """A new hash of a password, with a salt of its own. Blocks for about 0.2 s."""
    blank = PasswordHash(SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P, os.urandom(SALT_BYTES), b"")
    return PasswordHash(
        blank.log_n, blank.r, blank.p, blank.salt, blank._derive(_checked(password))
    )


def hash_token(token: str) -> TokenHash:
    """The hash of a token."""
    return TokenHash(hashlib.sha256(_checked(token)).digest())


def new_token() -> str:
    """A random token; the prefix `fifo_` lets scanners of leaked secrets find it."""
    return "fifo_" + base64.urlsafe_b64encode(os.urandom(TOKEN_BYTES)).decode().rstrip("=")


def parse_password_hash(text: str) -> PasswordHash:
    """Read the text form; raises ValueError, whose text never holds what was read."""
    found = _SCRYPT.fullmatch(text)
    if found is None:
        raise ValueError("must be a hash that `fifo user hash` prints: $scrypt$ln=15,r=8,p=3$...")
    log_n, r, p = (int(found[i]) for i in (1, 2, 3))
    if not (14 <= log_n <= 20 and 1 <= r <= 32 and 1 <= p <= 16):
        raise ValueError("its scrypt costs must be ln 14 to 20, r 1 to 32 and p 1 to 16")
    if 128 * r << log_n > SCRYPT_MEMORY_BYTES_MAX:
        raise ValueError(f"its scrypt costs need more than {SCRYPT_MEMORY_BYTES_MAX} bytes")
    try:
        salt, key = _decoded(found[4]), _decoded(found[5])
    except binascii.Error:
        raise ValueError("is cut or mistyped: its salt or key is not base64") from None
    if len(salt) < SALT_BYTES or len(key) != KEY_BYTES:
        raise ValueError(f"is cut: {SALT_BYTES} bytes of salt and {KEY_BYTES} of key are needed")
    return PasswordHash(log_n, r, p, salt, key)


def parse_token_hash(text: str) -> TokenHash:
    """Read the text form; raises ValueError, whose text never holds what was read."""
    found = _SHA256.fullmatch(text)
    if found is None:
        raise ValueError("must be a hash that `fifo user token` prints: sha256: and 64 hex digits")
    return TokenHash(bytes.fromhex(found[1]))


def _checked(secret: str) -> bytes:
    data = secret.encode()
    if not 1 <= len(data) <= SECRET_BYTES_MAX:
        raise ValueError(f"must be 1 to {SECRET_BYTES_MAX} bytes long, not {len(data)}")
    return data


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
