"""Clients that open more than they need: connections, sessions, producers, consumers, log-ins.

Owns attacks on what is counted. Must not know frames beyond those that open something.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
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
from tests.neighbours.field import DYING, LOG_IN_FRAMES, TENANT, Field, log_in

BATCH: Final = 1_000
IDLE: Final = 1_074
"""Connections to each port: what had stopped two of three nodes with 1,024 descriptors."""

DYING_PER_S: Final = 33
"""Programs a second that had filled all 10,000 sessions when each was kept for 5 minutes."""

GUESSERS: Final = [f"127.0.{1 + at // 25 % 2}.{1 + at % 25}" for at in range(100)]
"""Two connections of each of fifty addresses."""

STALE: Final = ["127.0.0.1"] * 40
"""The address of the honest programs: to a node all of them come through one NAT."""


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
    """Open sessions over connections that are cut at once, and knock on where it is refused."""
    for _ in field.rounds():
        with contextlib.suppress(Broken, OSError):
            field.knock(user).close()


def crash_loop(field: Field) -> None:
    """Programs that end without a word after their first request, as fast as they start"""
    for _ in field.rounds():
        with contextlib.suppress(Broken, OSError):
            peer = field.knock()
            field.cost.frames += 1
            peer.stored("tenant.queue", [b"x"])
            peer.close()


def programs_that_die(field: Field) -> None:
    """Programs that publish once and die without a word, 33 a second, for longer than a session
    is kept"""
    began = time.monotonic()
    living: list[int] = []
    for at in field.rounds(0.001):
        if time.monotonic() < began + at / DYING_PER_S:
            field.pause(began + at / DYING_PER_S - time.monotonic())
        living.append(_born(field))
        field.cost.connections += 1
        field.cost.frames += LOG_IN_FRAMES + 1
        living = [pid for pid in living if not _died(pid, os.WNOHANG)]
    for pid in living:
        _died(pid, 0)


def _born(field: Field) -> int:
    """Start a process that opens a session, publishes, and ends in the middle of everything."""
    pid = os.fork()
    if pid:
        return pid
    try:
        field.welcome(DYING).stored("tenant.queue", [b"x"])
    except (Broken, OSError) as error:
        sys.stderr.write(f"a program was refused: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _died(pid: int, options: int) -> bool:
    """Whether this process has ended. Ends the attack where the nodes refused it."""
    ended, status = os.waitpid(pid, options)
    if ended and status:
        raise SystemExit("a program was refused")
    return bool(ended)


def sessions(field: Field) -> None:
    """A tenant opens session after session"""
    _sessions(field, TENANT)


def idle_sessions(field: Field) -> None:
    """As many idle connections with sessions as the node lets in"""
    field.cost.frames += LOG_IN_FRAMES * len(field.welcomes(5_000))
    field.rest()


def producers(field: Field) -> None:
    """A tenant opens named producers without end"""
    peer = field.welcome()
    first = 0

    def made() -> bytes:
        nonlocal first
        first += BATCH
        return b"".join(frame_bytes(OPEN_PRODUCER, at + 1, f"t{first + at}") for at in range(BATCH))

    field.pump([peer.raw], made, BATCH)


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


def guessers(field: Field) -> None:
    """A hundred connections from fifty addresses guess passwords, of one user and of many names"""

    def made(at: int) -> bytes:
        name = "honest" if at % 2 else f"guessed{at}"
        return log_in(name, f"guess {at}".encode(), "password")

    _log_ins(field, GUESSERS, made)


def stale_tokens(field: Field) -> None:
    """Forty programs of this address log in with a token that has expired"""
    _log_ins(field, STALE, lambda _: log_in("honest", b"expired"))


def _log_ins(field: Field, sources: Sequence[str], made: Callable[[int], bytes]) -> None:
    """Keep as many connections as `sources`, each of which logs in and is then made anew."""
    held: list[socket.socket | None] = [None] * len(sources)
    for at in field.rounds(0.01):
        place = at % len(sources)
        older = held[place]
        if older is not None:
            field.drop(older)
        one = held[place] = field.dial(field.leaders("client"), sources[place])
        if one is not None:
            field.send(one, made(at), LOG_IN_FRAMES)


def reloads(field: Field) -> None:
    """Programs log in with right passwords while the users are reloaded, ten times a second"""
    target = Target("127.0.0.1", field.leaders("client"), TENANT, password=f"{TENANT}-password")
    for _ in field.rounds(0.001):
        with contextlib.suppress(Broken, OSError):
            peer = Peer(target)
            field.cost.connections += 1
            field.cost.frames += LOG_IN_FRAMES
            answer = peer.hello()
            peer.close()
            if answer.kind == ERROR and answer.fields[0] == "authentication_failed":
                raise SystemExit(f"a right password was refused: {answer.fields}")


ATTACKS = (
    half_open,
    idle_everywhere,
    crash_loop,
    programs_that_die,
    sessions,
    idle_sessions,
    producers,
    subscriptions,
    subscriptions_cut,
    consumers_that_come_and_go,
    queues,
    guessers,
    stale_tokens,
    reloads,
)
