"""Plausible bugs of who is dialed, heard and asked while members change: a test notices each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from node.broker.joining import Joining
from node.cli import member
from node.peers import asking
from node.peers.asking import Question
from node.peers.guests import Guests
from node.peers.handshake import ListenerSide
from node.peers.transport import PeerLink, TcpTransport
from node.raft import configuration
from node.raft.node import RaftNode
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.broker import test_changing_members as changes
from tests.node.broker import test_joining as joining
from tests.node.raft import test_following as following
from tests.node.raft import test_members as members

BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a new leader reads a configuration as a command": (
        edited(RaftNode, "_newest_command", "command.startswith(COMMAND_BYTE)", "True"),
        in_process(members.a_new_leader_reads_the_last_command_behind_configurations),
    ),
    "the finish of an upgrade ends connections on which no versions were said yet": (
        edited(TcpTransport, "use_protocol", "link.peer in self.versions.heard and ", ""),
        in_process(
            following.test_a_connection_on_which_no_versions_were_said_yet_outlives_the_finish
        ),
    ),
    "a joiner that has moved is refused its own name": (
        edited(Joining, "found", "if _is_empty(storage)", "if True"),
        in_process(
            joining.test_a_joiner_that_has_moved_starts_by_its_journal_before_it_learned_of_the_members
        ),
    ),
    "a new node takes the name of a member elsewhere": (
        edited(Joining, "_check_name", "member.address != ", "() == "),
        in_process(joining.test_a_new_node_with_the_name_of_a_member_elsewhere_is_refused),
    ),
    "a connection to a member that goes stays": (
        edited(TcpTransport, "follow", "link.dismiss()", "pass"),
        in_process(following.test_one_that_is_added_gets_a_connection_and_one_that_goes_loses_it),
    ),
    "a member that comes back is not dialed": (
        edited(TcpTransport, "follow", "self._dialers.pop(name, None)", "self._dialers.get(name)"),
        in_process(following.test_one_that_goes_and_comes_back_is_dialed_again),
    ),
    "no connection is made when the members change": (
        edited(TcpTransport, "follow", "self._dial_members()", "pass"),
        in_process(following.test_one_that_goes_and_comes_back_is_dialed_again),
    ),
    "a member that has moved is dialed where it was": (
        edited(TcpTransport, "_dial", "while self._followed[name] == address", "while True"),
        in_process(following.test_one_that_has_moved_is_dialed_where_it_is),
    ),
    "a move ends the connection that there is": (
        edited(
            TcpTransport,
            "follow",
            "self._followed.keys() - addresses.keys()",
            "dict(self._followed.items() - addresses.items()).keys()",
        ),
        in_process(following.test_one_that_has_moved_is_dialed_where_it_is),
    ),
    "a guest that has become a member waits on": (
        edited(TcpTransport, "follow", "self.guests.now_member(name)", "pass"),
        in_process(following.test_one_that_joins_dials_every_member_and_says_its_addresses),
    ),
    "one that joins waits to be dialed by those with a greater name": (
        edited(TcpTransport, "_until_due", " or self.about is not None", ""),
        in_process(following.test_one_that_joins_dials_every_member_and_says_its_addresses),
    ),
    "one that joins says no address": (
        edited(TcpTransport, "link_proven", "self.about is not None and", "False and"),
        in_process(following.test_one_that_joins_dials_every_member_and_says_its_addresses),
    ),
    "a guest that has gone waits on": (
        edited(TcpTransport, "link_ended", "self.guests.gone(link)", "pass"),
        in_process(following.test_one_that_joins_dials_every_member_and_says_its_addresses),
    ),
    "a member whom no other dials does not dial": (
        edited(TcpTransport, "_until_due", "if name not in self._links and", "if False and"),
        in_process(following.test_one_that_is_not_known_where_it_should_dial_dials_itself),
    ),
    "members dial out of turn below version 2": (
        edited(TcpTransport, "_until_due", " and self.versions.used >= PROTOCOL_OF_CHANGES", ""),
        in_process(following.test_no_member_dials_out_of_turn_before_members_may_change),
    ),
    "guests are heard below version 2": (
        edited(ListenerSide, "_hears_all", "newest >= PROTOCOL_OF_CHANGES", "newest"),
        in_process(following.test_one_that_is_no_member_is_refused_before_members_may_change),
    ),
    "no guest is heard": (
        edited(ListenerSide, "_hears_all", "newest >= PROTOCOL_OF_CHANGES", "False"),
        in_process(following.test_one_that_is_no_member_is_heard_where_members_may_change),
    ),
    "guests are without number": (
        edited(Guests, "came", "len(self._here) > limits.GUESTS_MAX", "False"),
        in_process(following.test_guests_are_few),
    ),
    "a member counts as a guest": (
        edited(TcpTransport, "link_proven", "link.peer not in self._followed", "True"),
        in_process(following.test_guests_take_no_place_of_a_member),
    ),
    "a question has to name the node": (
        edited(ListenerSide, "_hello", 'not in ("", identity.name)', "!= identity.name"),
        in_process(following.test_a_question_is_answered_and_no_member_comes_of_it),
    ),
    "a node that asks is a member": (
        edited(PeerLink, "_is_proven", "self._side.asks", "False"),
        in_process(following.test_a_question_is_answered_and_no_member_comes_of_it),
    ),
    "a question stays among the strangers": (
        edited(TcpTransport, "question_proven", "self._unproven.pop(link, None)", "pass"),
        in_process(following.test_a_question_is_no_stranger_once_it_is_proven),
    ),
    "one without the secret has an answer": (
        edited(ListenerSide, "received", "self._check(message, _DIALER)", "pass"),
        in_process(following.test_a_stranger_has_no_answer, {"secret": b"another secret!!!"}),
    ),
    "a node that asks says what a member says": (
        edited(PeerLink, "_is_proven", "self._asks = True", "self._asks = self._is_member = True"),
        in_process(following.test_a_node_that_asks_says_nothing_else),
    ),
    "any frame is the answer to a question": (
        edited(Question, "_take_own", 'message["type"] != "members"', "False"),
        in_process(following.test_a_connection_for_a_question_takes_nothing_else),
    ),
    "a question waits for another program": (
        edited(asking, "ask", "limits.ASK_SECONDS", "None"),
        in_process(following.test_a_question_to_another_program_ends_in_time),
    ),
    "a command takes a change that was given up for done": (
        edited(configuration, "undone", "done=False", "done=True"),
        in_process(members.a_change_is_known_by_its_place),
    ),
    "a command takes the end of another change for that of its own": (
        edited(member, "is_done", "if own in ended:", "if ended:"),
        in_process(changes.test_a_command_says_done_for_its_own_change_alone),
    ),
    "a command gives up a change that a new leader may commit yet": (
        edited(member, "is_done", ' or found["committed_term"] <= own[0]', ""),
        in_process(changes.test_a_command_says_done_for_its_own_change_alone),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("peers", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
