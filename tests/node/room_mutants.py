"""Plausible bugs of how a node keeps its disk and memory from filling: a test must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from collections.abc import Callable

from node.journal.snapshots.compaction import Compaction
from node.journal.snapshots.store import SnapshotStore
from node.raft.snapshots.shortage import Shortage
from tests.mutants.hunting import Hunt, Mutant, named, scenario
from tests.mutants.switch import Switch, edited
from tests.node.journal import test_shortage as journal_shortage
from tests.node.raft import test_shortage as raft_shortage


def _plain(work: Callable[[], object]) -> Hunt:
    return scenario(work, named(work))


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "room that is short is no reason for a snapshot": (
        edited(Shortage, "look", "self._journal.free_bytes < self._enough_bytes", "False"),
        _plain(raft_shortage.test_an_emptied_group_has_room_again_within_30_s_and_idle),
    ),
    "what others wrote on the disk costs snapshot after snapshot": (
        edited(Shortage, "look", "if dead_bytes < file_bytes:", "if False:"),
        _plain(raft_shortage.test_what_others_wrote_on_the_disk_is_no_reason_for_a_snapshot),
    ),
    "the older snapshot stays while room is short": (
        edited(SnapshotStore, "retire", "1 if self.short else SNAPSHOTS_KEPT", "SNAPSHOTS_KEPT"),
        _plain(journal_shortage.test_where_room_is_short_the_newest_snapshot_alone_stays),
    ),
    "half-empty files stay while room is short": (
        edited(Compaction, "_victims", "short = self._store.short", "short = False"),
        _plain(journal_shortage.test_files_that_are_half_empty_are_compacted_where_room_is_short),
    ),
    "a copy takes the last room of a disk": (
        edited(Compaction, "_compact", "not self._has_room_to_copy()", "False"),
        _plain(journal_shortage.test_no_copy_takes_the_last_room_of_a_short_disk),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("node", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
