"""Requests for what the user may not have: every request of the protocol, sessions, producers.

Owns attacks of users with no right, or with few. Must not know malformed bytes.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any, Final

from tests.conformance.peer import (
    ACK,
    ALIVE,
    CANCEL,
    CREDIT,
    DECLARE,
    GET,
    MOVE,
    NOTICE_ACK,
    OPEN_PRODUCER,
    PEEK,
    PUBLISH,
    QUEUE_ACTION,
    QUEUE_QUERY,
    RENEW,
    SETTLE,
    STATUS,
    SUBSCRIBE,
    UPDATE,
    Broken,
    frame_bytes,
)
from tests.neighbours.field import LOG_IN_FRAMES, READER, STRANGER, WRITER, Field

REDRIVE: Final = 46
DURABLE: Final = 48
TRANSFER_LEADERSHIP: Final = 50
FORGET_PRODUCER: Final = 51
END_SESSION: Final = 52

HONEST: Final = "honest"
"""The queue, the producer and the user of the honest client."""

BATCH: Final = 1_000

REQUESTS: Final[tuple[tuple[int, tuple[Any, ...], bytes], ...]] = (
    (PUBLISH, (HONEST, 0, 0, 1, 1, [[0, 4]]), struct.pack("<I", 1) + b"x"),
    (OPEN_PRODUCER, (HONEST,), b""),
    (SUBSCRIBE, (HONEST, "t", 10), b""),
    (CREDIT, (1, 10), b""),
    (CANCEL, (1,), b""),
    (GET, (HONEST, 1), b""),
    (SETTLE, (1, ACK, [[1, 10]]), b""),
    (RENEW, ([[1, [[1, 10]]]],), b""),
    (ALIVE, (1,), b""),
    (NOTICE_ACK, (1,), b""),
    (DECLARE, (HONEST, {}), b""),
    (UPDATE, (HONEST, {"max_deliveries": 1}), b""),
    *((QUEUE_ACTION, (HONEST, what), b"") for what in ("purge", "pause", "resume", "delete")),
    *(
        (QUEUE_QUERY, (HONEST, what, 100), b"")
        for what in ("show", "locks", "delayed", "consumers", "producers")
    ),
    *((QUEUE_QUERY, (None, what, 100), b"") for what in ("list", "sessions", "users")),
    (PEEK, (HONEST, 10), b""),
    (REDRIVE, (HONEST, None, None), b""),
    (MOVE, (HONEST, "tenant.queue", 10), b""),
    (DURABLE, (HONEST, "d", "open"), b""),
    (STATUS, (), b""),
    *((TRANSFER_LEADERSHIP, (node,), b"") for node in ("n1", "n2", "n3")),
    (FORGET_PRODUCER, (HONEST,), b""),
    (END_SESSION, ("00000000",), b""),
)
"""Every request of the protocol that a session may send, about what is the honest client's."""


def _every_request() -> bytes:
    return b"".join(
        frame_bytes(kind, at + 1, *fields, raw=raw)
        for at, (kind, fields, raw) in enumerate(REQUESTS)
    )


def without_rights(field: Field) -> None:
    """A user without any right asks for everything, pipelined behind its log-in"""
    field.behind_log_in(STRANGER, _every_request() * 50, 50 * len(REQUESTS))


def few_rights(field: Field) -> None:
    """Users who may only publish, or only consume, ask for everything that is another's"""
    peers = [field.welcome(user) for user in (READER, WRITER)]
    field.burst(peers, _every_request() * 10, 10 * len(REQUESTS))


def sessions_without_rights(field: Field) -> None:
    """A user without any right opens session after session"""
    for _ in field.rounds():
        with contextlib.suppress(Broken, OSError):
            field.knock(STRANGER).close()


def producers_without_rights(field: Field) -> None:
    """A user without any right opens named producers, pipelined behind its log-in"""
    data = b"".join(frame_bytes(OPEN_PRODUCER, at + 1, f"n{at}") for at in range(BATCH))
    field.behind_log_in(STRANGER, data, BATCH)


def forgotten_producers(field: Field) -> None:
    """The producer of the honest client, forgotten by name"""
    data = b"".join(frame_bytes(FORGET_PRODUCER, at + 1, HONEST) for at in range(BATCH))
    field.burst([field.welcome(WRITER)], data, BATCH)


def stolen_sessions(field: Field) -> None:
    """Hellos that resume the sessions of others, guessed and seen"""
    victim = field.welcome()
    for at in field.rounds():
        with contextlib.suppress(Broken, OSError):
            thief = field.peer(WRITER)
            thief.session = victim.session if at % 2 else field.random.randbytes(16)
            field.cost.frames += LOG_IN_FRAMES
            thief.hello(resume=True)
            thief.close()


ATTACKS = (
    without_rights,
    few_rights,
    sessions_without_rights,
    producers_without_rights,
    forgotten_producers,
    stolen_sessions,
)
