"""Bugs put back into real nodes: those of the simulator that fit, and a disk that never syncs.

Owns which patch a name stands for. Nothing in production can reach them: the node of the suite asks
for them by `FIFO_MUTANT`. `mutant_plans` has the run that finds each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from node.broker.broker import Broker
from node.broker.requests import changing_members
from node.journal.io.storage import OsFile
from node.peers.transport import TcpTransport
from node.raft.core import Core
from node.raft.roll import Roll
from tests.mutants.switch import edited
from tests.sim import mutants as simulated

SELDOM_S = 6.0


@contextmanager
def nothing_synced() -> Iterator[None]:
    """fdatasync returns at once and does nothing."""

    def sync(_file: OsFile) -> None:
        """Lie."""

    with patch.object(OsFile, "sync", sync):
        yield


@contextmanager
def due_late() -> Iterator[None]:
    """A leader looks for what is due every six seconds."""
    look = Broker.look
    looked: dict[Broker, float] = {}

    def seldom(broker: Broker, gap_s: float) -> None:
        if broker._now() - looked.get(broker, 0.0) >= SELDOM_S:
            looked[broker] = broker._now()
            look(broker, gap_s)

    with patch.object(Broker, "look", seldom):
        yield


@contextmanager
def removed_unanswered() -> Iterator[None]:
    """A removed member that comes back has no answer."""
    with patch.object(Core, "_tell_removed", lambda *_: None):
        yield


@contextmanager
def copies_heard() -> Iterator[None]:
    """A process of a member that is connected and lives takes the place of that one."""
    with (
        patch.object(TcpTransport, "_refuse_another", lambda *_: None),
        patch.object(Core, "_tell_twice", lambda *_: None),
    ):
        yield


def members_change_early() -> AbstractContextManager[object]:
    """Members change in a cluster of two releases: those of 0.1.0 know of no configuration."""
    return patch.object(changing_members, "why_none_changes", lambda _version: "")


images_count = edited(Roll, "_judge_member", "not known.journal or", "True or")
"""A journal from before identities counts whenever it comes, not only once."""


PATCHES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "token_not_compared": simulated.token_not_compared,
    "counts_reset": simulated.counts_reset,
    "confirms_early": simulated.confirms_early,
    "no_floors": simulated.no_floors,
    "nothing_synced": nothing_synced,
    "due_late": due_late,
    "removed_unanswered": removed_unanswered,
    "copies_heard": copies_heard,
    "members_change_early": members_change_early,
    "images_count": images_count,
}
