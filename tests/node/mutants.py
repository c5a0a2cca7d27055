"""Plausible bugs of a node's doors, descriptors and commands: a test must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from node.absences import Absences
from node.broker.connections import listener
from node.cli import options
from node.collector import Collector
from node.http.doors import Door, Doors
from node.journal.io.seats import Seats
from node.peers.accepting import Acceptor
from node.peers.dialing import DialingSockets
from node.peers.seldom import Seldom
from node.server import Node
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node import test_absences as absences
from tests.node import test_collector as collecting
from tests.node import test_seldom as seldom
from tests.node.cli import test_consume as consume
from tests.node.http import test_doors as doors
from tests.node.journal import test_descriptors as descriptors
from tests.node.raft import test_dialing as dialing

BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a file that is closed gives its reserved descriptor away": (
        edited(Seats, "leave", "if descriptor in self._occupied:", "if False:"),
        in_process(descriptors.test_a_journal_gives_all_of_its_descriptors_back),
    ),
    "a file that cannot be opened costs a reserved descriptor": (
        edited(Seats, "take", "self._refill()", "pass"),
        in_process(descriptors.test_a_file_that_cannot_be_opened_costs_no_seat),
    ),
    "idle connections of the http port lock probes out": (
        edited(Doors, "opened", "if len(self._open) >= limits.CONNECTIONS_MAX:", "if False:"),
        in_process(doors.test_more_idle_connections_than_the_bound_lock_no_probe_out),
    ),
    "the first request over http may take for ever": (
        edited(Door, "connection_made", "self.within(limits.REQUEST_SECONDS)", "pass"),
        in_process(doors.test_a_request_that_does_not_come_ends_its_connection, b""),
    ),
    "a peer may take for ever to read a page": (
        edited(Door, "pause_writing", "self.within(limits.STALLED_SECONDS)", "pass"),
        in_process(doors.test_an_answer_that_is_not_read_ends_its_connection),
    ),
    "a request over http may be of any size": (
        edited(Door, "data_received", "if len(data) <= room:", "if True:"),
        in_process(doors.test_requests_without_end_end_their_connection),
    ),
    "each stranger has a line of the log, however many they are": (
        edited(Seldom, "may", "or len(self._logged_at) >= limits.REFUSAL_LINES_MAX", ""),
        in_process(seldom.test_each_subject_has_one_line_in_a_period_and_all_have_a_bound),
    ),
    "a lack of descriptors is no alarm": (
        edited(listener, "descriptor_left", "problem.errno not in NO_DESCRIPTOR_ERRNOS", "True"),
        in_process(doors.test_a_lack_of_descriptors_is_an_alarm_and_passes),
    ),
    "Python collects young objects three times": (
        edited(Collector, "__enter__", "YOUNG_OBJECTS, NEVER, NEVER", "700, 10, NEVER"),
        in_process(collecting.test_what_is_made_in_a_turn_is_collected_once),
    ),
    "a leader is away for a look at all garbage": (
        edited(Absences, "may_go", "not leads and ", ""),
        in_process(absences.test_a_leader_stays_unless_it_is_alone),
    ),
    "two members are away at the same time": (
        edited(Absences, "may_go", " == self._slot", " in (self._slot, self._slot - 2)"),
        in_process(absences.test_members_are_away_one_at_a_time_with_a_pause_between),
    ),
    "a leader with too much garbage stays": (
        edited(Node, "_collect", "target is not None", "False"),
        in_process(absences.test_a_leader_hands_over_for_a_look_at_all_garbage_and_then_takes_it),
    ),
    "a member that lacks a descriptor dials no other": (
        edited(DialingSockets, "_make", "if self._spare is None:", "if False:"),
        in_process(dialing.test_members_connect_again_while_no_descriptor_is_left),
    ),
    "a member that lacks a descriptor accepts no other": (
        edited(
            Acceptor,
            "_accept",
            "error.errno in NO_DESCRIPTOR_ERRNOS and self._spares.give_up_one()",
            "False",
        ),
        in_process(dialing.test_members_connect_again_while_no_descriptor_is_left),
    ),
    "options of a queue or a consumer that are typed are dropped": (
        edited(options, "_keywords", "if value is not None", "if False"),
        in_process(consume.test_every_option_of_a_consumer_that_is_typed_is_subscribed_with),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("node", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
