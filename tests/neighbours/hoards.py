"""Clients that open more than they need: connections, sessions, producers, consumers, log-ins.

Owns attacks on what is counted. Must not know frames beyond those that open something.
"""

from __future__ import annotations

import contextlib
from typing import Final

from tests.conformance.peer import (
    CANCEL,
    DECLARE,
    ERROR,
    OPEN_PRODUCER,
    SUBSCRIBE,
    Broken,
    Peer,
    Target,
    frame_bytes,
)
from tests.neighbours.field import STRANGER, TENANT, Field

BATCH: Final = 1_000
IDLE: Final = 1_074
"""Connections to each port: what had stopped two of three nodes with 1,024 descriptors."""

FORGET_PRODUCER: Final = 51


def half_open(field: Field) -> None:
    """Connections that never say a word, again and again"""
    port = field.leaders("client")
    held = [field.dial(port) for _ in range(600)]
    for at in field.rounds(0.005):
        place = at % len(held)
        one = held[place]
        if one is not None:
            field.drop(one)
        held[place] = field.dial(port)


def idle_everywhere(field: Field) -> None:
    """1,074 idle connections to each port of each node"""
    for kind in ("client", "peer", "http"):
        for port in field.ports(kind):
            for _ in range(IDLE):
                field.dial(port)
    field.rest()


def _sessions(field: Field, user: str) -> None:
    """Open sessions over connections that are cut at once."""
    while field.open:
        try:
            field.welcome(user).close()
        except (Broken, OSError):
            for _ in field.rounds(0.05):  # Refused: knock again now and then.
                with contextlib.suppress(Broken, OSError):
                    field.welcome(user).close()


def crash_loop(field: Field) -> None:
    """Programs that end without a word after their first request, as fast as they start"""
    for _ in field.rounds():
        with contextlib.suppress(Broken, OSError):
            peer = field.welcome()
            peer.stored("tenant.queue", [b"x"])
            peer.close()


def sessions(field: Field) -> None:
    """A tenant opens session after session"""
    _sessions(field, TENANT)


def sessions_without_rights(field: Field) -> None:
    """A user without any right opens session after session"""
    _sessions(field, STRANGER)


def idle_sessions(field: Field) -> None:
    """As many idle connections with sessions as the node lets in"""
    field.welcomes(5_000)
    field.rest()


def _producers(field: Field, user: str, name: str) -> None:
    peer = field.welcome(user)
    first = 0

    def made() -> bytes:
        nonlocal first
        first += BATCH
        return b"".join(
            frame_bytes(OPEN_PRODUCER, at + 1, f"{name}{first + at}") for at in range(BATCH)
        )

    field.pump([peer.raw], made, BATCH)


def producers(field: Field) -> None:
    """A tenant opens named producers without end"""
    _producers(field, TENANT, "t")


def producers_without_rights(field: Field) -> None:
    """A user without any right opens named producers without end"""
    _producers(field, STRANGER, "n")


def forgotten_producers(field: Field) -> None:
    """Producers of others, forgotten by name"""
    data = b"".join(frame_bytes(FORGET_PRODUCER, at + 1, "honest") for at in range(BATCH))
    field.burst([field.welcome(STRANGER)], data, BATCH)


def _subscriptions(field: Field, peer: Peer) -> None:
    first = 0

    def made() -> bytes:
        nonlocal first
        first += BATCH
        return b"".join(
            frame_bytes(SUBSCRIBE, at + 1, "tenant.empty", f"t{first + at}", 65_535)
            for at in range(BATCH)
        )

    field.pump([peer.raw], made, BATCH)


def subscriptions(field: Field) -> None:
    """A session subscribes tens of thousands of times"""
    _subscriptions(field, field.welcome())


def subscriptions_cut(field: Field) -> None:
    """Sessions with a thousand consumers each, whose sockets are cut"""
    data = b"".join(
        frame_bytes(SUBSCRIBE, at + 1, "tenant.empty", f"t{at}", 10) for at in range(BATCH)
    )
    for _ in field.rounds(0.05):
        with contextlib.suppress(Broken, OSError):
            peer = field.welcome()
            peer.send_bytes(data)
            field.cost.frames += BATCH
            field.cost.sent_bytes += len(data)
            peer.close()


def consumers_that_come_and_go(field: Field) -> None:
    """A consumer subscribes and cancels without end"""
    peer = field.welcome()
    number = peer.subscribe("tenant.empty", 10, "t")
    one = frame_bytes(SUBSCRIBE, 1, "tenant.empty", "t", 10) + frame_bytes(CANCEL, 2, number)
    field.burst([peer], one * 20, 40)


def queues(field: Field) -> None:
    """A tenant declares queues without end"""
    peer = field.welcome()
    first = 0

    def made() -> bytes:
        nonlocal first
        first += 100
        return b"".join(
            frame_bytes(DECLARE, at + 1, f"tenant.{first + at}", {}) for at in range(100)
        )

    field.pump([peer.raw], made, 100)


def stolen_sessions(field: Field) -> None:
    """Hellos that resume the sessions of others, guessed and seen"""
    victim = field.welcome()
    for _ in field.rounds():
        with contextlib.suppress(Broken, OSError):
            thief = field.peer(STRANGER)
            thief.session = victim.session
            thief.hello(resume=True)
            thief.close()


def guessers(field: Field) -> None:
    """A hundred connections from fifty addresses guess passwords"""
    for at in field.rounds(0.01):
        one = field.dial(field.leaders("client"), f"127.0.0.{2 + at % 50}")
        if one is not None:
            field.send(one, _guess(at), 2)
            if field.cost.connections > 100:
                field.drop(one)


def stale_tokens(field: Field) -> None:
    """Forty programs of this address log in with a token that has expired"""
    for _ in field.rounds(0.02):
        with contextlib.suppress(Broken, OSError):
            peer = field.peer("honest", token="expired")
            peer.raw.setblocking(False)
            field.send(peer.raw, _guess(0, b"expired", "token"), 2)
            if field.cost.connections <= 40:
                continue
            peer.close()


def reloads(field: Field) -> None:
    """Programs log in with right passwords while the users are reloaded, ten times a second"""
    target = Target("127.0.0.1", field.leaders("client"), TENANT, password=f"{TENANT}-password")
    for _ in field.rounds(0.001):
        with contextlib.suppress(Broken, OSError):
            peer = Peer(target)
            field.cost.connections += 1
            answer = peer.hello()
            peer.close()
            if answer.kind == ERROR and answer.fields[0] == "authentication_failed":
                raise SystemExit(f"a right password was refused: {answer.fields}")


def _guess(at: int, secret: bytes = b"", mechanism: str = "password") -> bytes:
    who = ["guess", [], "honest", mechanism, 5000, False]
    session = at.to_bytes(16, "little")
    proof = secret or f"guess {at}".encode()
    return frame_bytes(1, 0, 1, 1, 0, session, session, *who) + frame_bytes(4, 0, mechanism, proof)


ATTACKS = (
    half_open,
    idle_everywhere,
    crash_loop,
    sessions,
    sessions_without_rights,
    idle_sessions,
    producers,
    producers_without_rights,
    forgotten_producers,
    subscriptions,
    subscriptions_cut,
    consumers_that_come_and_go,
    queues,
    stolen_sessions,
    guessers,
    stale_tokens,
    reloads,
)
