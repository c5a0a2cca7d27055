"""Plausible bugs of how a node keeps its disk and memory from filling: a test must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from node.journal.journal import Journal
from node.journal.reserve import Reserve
from node.journal.segments import NewSegment, Preallocation
from node.journal.snapshots.compaction import Compaction
from node.journal.snapshots.store import SnapshotStore
from node.raft.snapshots.shortage import Shortage
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.journal import test_reserve as reserve
from tests.node.journal import test_shortage as journal_shortage
from tests.node.raft import test_shortage as raft_shortage

BUGS: dict[str, tuple[Switch, Hunt]] = {
    "room that is short is no reason for a snapshot": (
        edited(Shortage, "look", "self._journal.room_bytes < self._enough_bytes", "False"),
        in_process(raft_shortage.test_an_emptied_group_has_room_again_within_30_s_and_idle),
    ),
    "what others wrote on the disk costs snapshot after snapshot": (
        edited(Shortage, "look", "if dead_bytes < file_bytes:", "if False:"),
        in_process(raft_shortage.test_what_others_wrote_on_the_disk_is_no_reason_for_a_snapshot),
    ),
    "the older snapshot stays while room is short": (
        edited(SnapshotStore, "retire", "1 if self.short else SNAPSHOTS_KEPT", "SNAPSHOTS_KEPT"),
        in_process(journal_shortage.test_where_room_is_short_the_newest_snapshot_alone_stays),
    ),
    "half-empty files stay while room is short": (
        edited(Compaction, "_victims", "short = self._store.short", "short = False"),
        in_process(
            journal_shortage.test_files_that_are_half_empty_are_compacted_where_room_is_short
        ),
    ),
    "a copy takes the last room of a disk": (
        edited(Compaction, "_compact", "not self._has_room_to_copy()", "False"),
        in_process(journal_shortage.test_no_copy_takes_the_last_room_of_a_short_disk),
    ),
    "a group that finds no room ends the node though there is a reserve": (
        edited(Preallocation, "_write_without", "if not self._reserve.helps(problem):", "if True:"),
        in_process(reserve.test_a_full_disk_takes_on_in_the_room_of_the_reserve),
    ),
    "a segment that finds no room ends the node though there is a reserve": (
        edited(NewSegment, "_fitting", "if not self._reserve.helps(problem):", "if True:"),
        in_process(reserve.test_a_segment_that_finds_no_room_is_made_in_that_of_the_reserve),
    ),
    "a start on a full disk keeps the reserve": (
        edited(Reserve, "__init__", "storage.free_bytes() < self._held_bytes", "False"),
        in_process(reserve.test_a_start_on_a_full_disk_has_the_room_of_the_reserve),
    ),
    "a snapshot that finds no room is given up though there is a reserve": (
        edited(Journal, "_check_room", "self._reserve.give_up()", "False"),
        in_process(reserve.test_a_snapshot_that_lacks_room_has_that_of_the_reserve),
    ),
    "the room of the reserve counts as free while it is given up": (
        edited(Reserve, "give_up", "self._held_bytes = 0", "self._held_bytes = self._wanted_bytes"),
        in_process(reserve.test_the_room_of_a_missing_reserve_is_not_free),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("node", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
