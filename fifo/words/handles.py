"""Settlement handles: what settles a message from another session than the one that received it.

Owns their computation, which node, client and machine share. A session has a secret key, known to
its client and to the cluster; the handle of a delivery is derived from it, so that one handle says
nothing about another. Must not know where a key is drawn or kept.
"""

import hmac
from typing import Final

KEY_BYTES: Final = 16
"""The key of a session: as many random bytes as its id."""

HANDLE_BYTES: Final = 16
"""A handle: 128 bits, which no client guesses in the life of a lock."""

_NUMBER_BYTES: Final = 8
"""Consumer and token in the hashed text: each a number below 2^63."""


def handle_of(key: bytes, consumer: int, token: int) -> bytes:
    """The handle of one delivery: HMAC-SHA256 of its consumer and token, cut to its length."""
    numbers = consumer.to_bytes(_NUMBER_BYTES, "little") + token.to_bytes(_NUMBER_BYTES, "little")
    return hmac.digest(key, numbers, "sha256")[:HANDLE_BYTES]


def is_handle_of(handle: bytes, key: bytes, consumer: int, token: int) -> bool:
    """Whether this is the handle of that delivery; in a time that tells nothing of it."""
    return hmac.compare_digest(handle, handle_of(key, consumer, token))
