"""Programs that pass for members, and floods of the peer ports while a member is restarted.

Owns attacks with the nodes' own handshake, with a secret or without the right one. Must not know
the client port.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Final

from node.peers.frames import Decoder, encode
from node.peers.handshake import DialerSide, Identity, PeerRefused
from node.peers.message import COMMAND_BYTE, Message
from tests.neighbours.field import Field

FAR_TERM: Final = 1_000_000
FAR: Final = {"term": FAR_TERM, "last_log_index": FAR_TERM, "last_log_term": FAR_TERM}
PROOF_SECONDS: Final = 1.0
"""A node that has not answered a proof after this does not."""

WRONG_SECRETS: Final = (b"", b"a secret of thirty-two bytes: no")

ASKS: Final[Sequence[Message]] = (
    {"type": "pre_vote", "number": 1, **FAR},
    {"type": "request_vote", "transfer": False, **FAR},
)

LEADS: Final[Sequence[Message]] = (
    *ASKS,
    *(
        {
            "type": "append_entries",
            "term": FAR_TERM,
            "commit_index": previous + 1,
            "prevLogIdx": previous,
            "prevLogTerm": term,
            "round": 1,
            "entries": [(COMMAND_BYTE + b"forged", previous + 1, FAR_TERM)],
        }
        for previous, term in ((1, 1), (1, FAR_TERM), (3, 1), (FAR_TERM, FAR_TERM))
    ),
)
"""Frames of a leader of a far term, whose entries come after others, replace others, and end a log
that is none of the nodes'."""


def flooded_restart(field: Field) -> None:
    """A follower is restarted while its peer port is flooded with junk and half-open connections"""
    _flood(field, [name for name in field.plan["nodes"] if name != field.plan["leader"]])


def flooded_leader_restart(field: Field) -> None:
    """The leader is killed and started again while all peer ports are flooded like that"""
    _flood(field, list(field.plan["nodes"]))


def _flood(field: Field, names: Sequence[str]) -> None:
    ports = [field.plan["nodes"][name]["peer"] for name in names]
    held: list[socket.socket] = []
    for at in field.rounds(0.001):
        one = field.dial(ports[at % len(ports)])
        if one is None:
            continue
        if at % 4 < 2:
            field.send(one, field.random.randbytes(300))
        held.append(one)
        if len(held) > 300:
            field.drop(held.pop(0))


def forged_peer(field: Field) -> None:
    """A program that knows the empty secret proves to be a member at each other one, and asks for
    votes of a term far ahead"""
    forged = max(field.plan["nodes"])
    for _ in field.rounds(0.1):
        for name, to in _pairs(field):
            if name == forged:  # As all of them at once it takes the leader's lease (security.md).
                with contextlib.suppress(OSError, PeerRefused):
                    _prove(field, name, to, b"", ASKS)


def forged_leader(field: Field) -> None:
    """A program without the nodes' secret says to be each member, and leads a term far ahead, with
    entries"""
    for at in field.rounds(0.02):
        for name, to in _pairs(field):
            with contextlib.suppress(OSError, PeerRefused):
                if _prove(field, name, to, WRONG_SECRETS[at % len(WRONG_SECRETS)], LEADS):
                    raise SystemExit("a proof with a wrong secret was accepted")


def proven_again(field: Field) -> None:
    """A program with the nodes' secret proves to be each member, again and again, and says nothing
    more"""
    secret = bytes.fromhex(field.plan["secret"])
    for _ in field.rounds(0.02):
        for name, to in _pairs(field):
            with contextlib.suppress(OSError, PeerRefused):
                _prove(field, name, to, secret, ())


def _pairs(field: Field) -> Iterator[tuple[str, str]]:
    """Two members, of which the first dials the second: the greater name."""
    for to, name in itertools.combinations(sorted(field.plan["nodes"]), 2):
        yield name, to


def _prove(field: Field, name: str, to: str, secret: bytes, then: Sequence[Message]) -> bool:
    """Say to be `name` at the node `to`, with what follows right behind the proof; the connection
    is kept. Returns whether the node was convinced."""
    one = field.dial(field.plan["nodes"][to]["peer"])
    if one is None:
        return False
    one.setblocking(True)
    one.settimeout(PROOF_SECONDS)
    cluster = bytes.fromhex(field.plan["cluster_id"])
    side = DialerSide(Identity(name, cluster, secret, os.urandom(16)), os.urandom, to)
    decoder = Decoder()
    _tell(field, one, [side.hello()])
    while count := one.recv_into(decoder.buffer()):
        for message in decoder.received(count):
            answer, proven = side.received(message)
            if answer is not None:
                _tell(field, one, [answer, *then])
            if proven:
                return True
    return False


def _tell(field: Field, one: socket.socket, messages: Sequence[Message]) -> None:
    data = b"".join(b"".join(encode(message)) for message in messages)
    one.sendall(data)
    field.cost.frames += len(messages)
    field.cost.sent_bytes += len(data)


ATTACKS = (flooded_restart, flooded_leader_restart, forged_peer, forged_leader, proven_again)
