"""The rules for nodes, and running them against one.

Owns the list and the order. A rule gets a `Case`, makes connections and a queue of its own, and
raises `Broken`. Must not know any rule.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from tests.conformance.peer import CLOSE, DECLARE, QUEUE_ACTION, Broken, Peer, Target
from tests.conformance.rules import Outcome, Rule, Rules


@dataclass
class Case:
    """Things of one rule: connections that are closed afterwards, and queues that are deleted."""

    target: Target
    peers: list[Peer] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)

    def connect(self, of: Peer | None = None, *, life: bytes | None = None) -> Peer:
        """Open a TCP connection, of the same session and incarnation as `of`."""
        peer = Peer(self.target) if of is None else Peer(self.target, of.session, life or of.life)
        self.peers.append(peer)
        return peer

    def open(self, **more: Any) -> Peer:
        """Open a session with a data connection."""
        return self.connect().open(**more)

    def again(self, peer: Peer, **more: Any) -> Peer:
        """Open one more connection of that session, to resume it."""
        return self.connect(peer).open(resume=True, **more)

    def queue(self, peer: Peer, **spec: Any) -> str:
        """Declare a queue under a name of its own."""
        name = f"conformance.{os.urandom(6).hex()}"
        self.queues.append(name)
        peer.ok(DECLARE, name, spec)
        return name

    def clean(self) -> None:
        """Close every connection, and leave no queue and no session behind."""
        for peer in self.peers:
            peer.close()
        with contextlib.suppress(Broken, OSError):
            cleaner = Peer(self.target).open()
            for name in self.queues:
                cleaner.ask(QUEUE_ACTION, name, "delete")
            for session, life in dict.fromkeys((one.session, one.life) for one in self.peers):
                _end(self.target, session, life)
            _close(cleaner)


def _end(target: Target, session: bytes, life: bytes) -> None:
    peer = Peer(target, session, life)
    with contextlib.suppress(Broken, OSError):
        _close(peer.open(resume=True))
    peer.close()


def _close(peer: Peer) -> None:
    peer.ask(CLOSE)
    peer.close()


rule: Rules[Case] = Rules()


def run(target: Target, only: str = "") -> Iterator[Outcome]:
    """Check the rules, those whose name contains `only`, in the order of the page."""
    for one in rule.chosen(only):
        yield Outcome(one, _problem(one, target))


def _problem(one: Rule[Case], target: Target) -> str | None:
    case = Case(target)
    try:
        one.check(case)
    except (Broken, OSError) as problem:
        return str(problem) or type(problem).__name__
    except (ValueError, TypeError, LookupError, struct.error, msgpack.UnpackException) as problem:
        return f"the node's frame could not be read: {problem!r}"
    finally:
        case.clean()
    return None
