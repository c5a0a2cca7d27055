"""Plausible bugs of who is dialed, heard and asked while members change: a test notices each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from node.broker.joining import Joining
from node.cli import member
from node.peers.transport import TcpTransport
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
        edited(
            Joining,
            "found",
            "        self._check_name(known)\n",
            "    self._check_name(known)\n",
        ),
        in_process(
            joining.test_a_joiner_that_has_moved_starts_under_its_own_name_at_its_new_address
        ),
    ),
    "a new node takes the name of a member elsewhere": (
        edited(Joining, "_check_name", "member.address != ", "() == "),
        in_process(joining.test_a_new_node_with_the_name_of_a_member_elsewhere_is_refused),
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
