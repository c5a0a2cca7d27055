"""Plausible bugs of pinned views, backups and restores: a test of their parts must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from node.backup import file, members, restoring
from node.broker.pin_copies import ViewCopy
from node.broker.pins import Pins
from node.config import cluster_config
from node.journal.snapshots.store import BodyHold, SnapshotStore
from tests.machine import test_restored
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.backup import test_file, test_remains, test_restoring
from tests.node.backup import test_members_by_log as by_log
from tests.node.broker import test_pin_copies as copies
from tests.node.broker import test_pins as pins
from tests.node.cli import test_rebuild
from tests.node.journal import test_holds as holds

CONFIG = {"config": lambda: nullcontext(cluster_config(3, 7100, Path("/nowhere")))}
_newest = in_process(
    by_log.test_the_newest_configuration_holds_and_its_learners_are_no_members, fixtures=CONFIG
)
_other = in_process(by_log.test_the_cluster_that_goes_on_is_another_one_each_time, fixtures=CONFIG)
_moved = in_process(by_log.test_who_moved_is_where_it_is_now, fixtures=CONFIG)

_word = in_process(
    test_rebuild.test_the_word_of_a_member_counts_where_it_has_its_journal_and_no_leader
)

BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a rebuild goes by the file where members have changed": (
        edited(by_log, "by_log", "if found is None:", "if True:"),
        _newest,
    ),
    "a learner is a member of the cluster that goes on": (
        edited(by_log, "by_log", "replace(found, learners=())", "found"),
        _newest,
    ),
    "a rebuild goes by the oldest change of a log": (
        edited(members, "configuration_in", "noted[max(noted)]", "noted[min(noted)]"),
        _newest,
    ),
    "a rebuild overlooks the members of a snapshot": (
        edited(members, "configuration_in", "meta.members", 'b""'),
        _newest,
    ),
    "a cluster that is rebuilt twice has the name of the first": (
        edited(by_log, "anew", "if name == config.name:", "if False:"),
        _other,
    ),
    "a member that has moved begins anew where it was": (
        edited(by_log, "anew", "moved.get(node.name, node)", "node"),
        _moved,
    ),
    "a pin at one index has the next entry in it too": (
        edited(Pins, "reaches", "one.index < index", "one.index <= index"),
        in_process(copies.test_a_pin_at_one_index_is_made_between_two_entries),
    ),
    "a pin of an index that is past is made all the same": (
        edited(Pins, "awaiting", "self._log.applied_index > index", "False"),
        in_process(copies.test_a_pin_at_one_index_is_made_between_two_entries),
    ),
    "pins that are awaited do not count": (
        edited(Pins, "refusal", " + [one.user for one in self._awaited]", ""),
        in_process(copies.test_awaited_pins_count_as_pins),
    ),
    "a replica that differs is a source": (
        edited(Pins, "unsound", "self._log.differs", "False"),
        in_process(pins.test_a_node_that_recovers_lags_or_knows_no_leader_is_no_source),
    ),
    "a member that recovers is a source": (
        edited(Pins, "unsound", "waits is not None", "False"),
        in_process(pins.test_a_node_that_recovers_lags_or_knows_no_leader_is_no_source),
    ),
    "a backup goes on from a replica that was found to differ": (
        edited(Pins, "_look_at", "self._log.differs", "False"),
        in_process(pins.test_what_was_pinned_before_a_node_was_found_to_differ_is_read_no_more),
    ),
    "a pin ends with its first lease": (
        edited(Pins, "used", "pin.until = self._now() + pin.lease_s", "pass"),
        in_process(pins.test_each_use_begins_the_lease_anew),
    ),
    "pins may keep any amount of memory": (
        edited(Pins, "sweep", "sum(kept.values()) > limits.PINNED_MESSAGES_MAX", "False"),
        in_process(pins.test_the_oldest_pin_ends_where_they_keep_too_much),
    ),
    "a hold keeps no snapshot": (
        edited(BodyHold, "__init__", "store.pin(meta)", "store.short = store.short"),
        in_process(holds.test_what_the_newest_snapshot_needs_stays_through_later_ones),
    ),
    "a disk that is short keeps what is held": (
        edited(SnapshotStore, "end_holds", "hold.end()", "pass"),
        in_process(holds.test_a_short_disk_ends_holds_first, 30),
    ),
    "a piece of a state is given for any place": (
        edited(ViewCopy, "state", " or last.after != at", ""),
        in_process(copies.test_the_pieces_of_a_state_are_its_canonical_bytes),
    ),
    "two readers make pieces of one state": (
        edited(ViewCopy, "state", "self._busy or ", ""),
        in_process(copies.test_one_reader_at_a_time_makes_pieces),
    ),
    "the entry that a reader has is sent again": (
        edited(ViewCopy, "entries", "bisect_right(page, above)", "bisect_right(page, above - 1)"),
        in_process(copies.test_entries_come_in_order_from_any_place),
    ),
    "the checksum of a backup's record is not looked at": (
        edited(file._Reading, "_record", "not records.record_is_whole(", "False and bool("),
        in_process(test_file.test_damage_anywhere_is_named_by_its_byte),
    ),
    "a backup may go on behind its end": (
        edited(file._Reading, "whole", "self._file.read(1)", "False"),
        in_process(test_file.test_a_file_that_is_cut_off_is_no_backup),
    ),
    "a backup replaces a file that came meanwhile": (
        edited(file.BackupWriter, "publish", "self.path.exists()", "False"),
        in_process(test_file.test_a_file_that_came_meanwhile_stays),
    ),
    "a backup that was given up stays": (
        edited(file.BackupWriter, "abort", "os.unlink(self._made)", "pass"),
        in_process(test_file.test_what_is_given_up_leaves_no_file),
    ),
    "entries of a backup may come in any order": (
        edited(file.Backup, "note_entry", "index <= self._indexes[-1]", "False"),
        in_process(test_file.test_entries_that_do_not_ascend_are_no_backup),
    ),
    "sessions of the lost cluster go on in the restored one": (
        edited(test_restored, "as_new_cluster", "list(state.sessions)", "()"),
        in_process(test_restored.test_sessions_end_and_what_they_held_is_ready_uncounted),
    ),
    "a restored cluster numbers consumers as the lost one did": (
        edited(test_restored, "as_new_cluster", "state.next_consumer += NUMBERS_LEFT_OUT", "pass"),
        in_process(test_restored.test_no_number_of_the_lost_cluster_comes_again),
    ),
    "a restored cluster numbers queues as the lost one did": (
        edited(test_restored, "as_new_cluster", "state.next_queue += QUEUES_LEFT_OUT", "pass"),
        in_process(test_restored.test_no_number_of_the_lost_cluster_comes_again),
    ),
    "who has a durable consumer open keeps it through a restore": (
        edited(test_restored, "as_new_cluster", "consumer.durable += NUMBERS_LEFT_OUT", "pass"),
        in_process(
            test_restored.test_a_durable_consumer_keeps_what_it_reserved_and_fences_who_has_it_open
        ),
    ),
    "a restored cluster has the name of the lost one": (
        edited(test_restoring, "check", "config.cluster_id == backup.cluster_id", "False"),
        in_process(test_restoring.test_the_name_of_the_lost_cluster_and_what_is_there_are_refused),
    ),
    "a restore goes into a folder with files": (
        edited(test_restoring, "check", "if found:", "if False:"),
        in_process(test_restoring.test_the_name_of_the_lost_cluster_and_what_is_there_are_refused),
    ),
    "a restore that was killed leaves an empty member that votes": (
        edited(restoring.Restore, "make", "recover=stamp", "recover=None"),
        in_process(test_restoring.test_a_restore_that_stops_anywhere_leaves_a_member_that_recovers),
    ),
    "a restored member recovers for ever": (
        edited(restoring.Restore, "make", "journal.end_recovery()", "pass"),
        in_process(test_restoring.test_every_node_begins_with_the_same_snapshot_and_its_entries),
    ),
    "a rebuild goes on from a member that has less than another": (
        edited(test_remains, "check", "best != source", "False"),
        in_process(test_remains.test_the_member_to_go_on_from_is_the_one_with_the_greatest_end),
    ),
    "a rebuild is made while a majority is left": (
        edited(test_remains, "check", "has_majority(config, found)", "False"),
        in_process(test_remains.test_a_majority_that_is_left_needs_no_rebuild),
    ),
    "a majority that does not find each other counts as left": (
        edited(test_remains, "check", "if name not in moved", "if True"),
        in_process(test_remains.test_a_majority_that_has_moved_is_rebuilt_and_loses_nothing),
    ),
    "a rebuild takes a member of which nothing is known for lost": (
        edited(test_remains, "check", "if unknown and", "if False and"),
        in_process(test_remains.test_a_member_of_which_nothing_is_known_may_have_more),
    ),
    "an end counts of a member that may still accept entries": (
        edited(test_remains, "check", "if running and", "if False and"),
        in_process(
            test_remains.test_what_was_asked_of_members_that_run_counts_only_where_they_elect_no_leader
        ),
    ),
    "an end counts of a member that knows a leader": (
        edited(test_rebuild, "end_said", 'view["leader"] is not None', "False"),
        _word,
    ),
    "an end counts of a member of another cluster": (
        edited(
            test_rebuild,
            "end_said",
            '(view["node"], view["cluster"]) != (node.name, cluster.cluster_id.hex())',
            'view["node"] != node.name',
        ),
        _word,
    ),
    "an end counts of a member that recovers": (
        edited(
            test_rebuild,
            "end_said",
            'if view["recovering"] is not None or',
            "if False or",
        ),
        _word,
    ),
    "members of which nothing is known elect no leader": (
        edited(test_remains, "check", "[*running, *unknown]", "[*running]"),
        in_process(
            test_remains.test_what_was_asked_of_members_that_run_counts_only_where_they_elect_no_leader
        ),
    ),
    "a backup without a body is restored": (
        edited(restoring.Restore, "__init__", "missing is not None", "False"),
        in_process(
            test_restoring.test_a_backup_that_lacks_an_entry_is_found_before_any_folder_is_made
        ),
    ),
}

MUTANTS = tuple(
    Mutant("backup", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
