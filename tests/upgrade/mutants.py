"""Plausible bugs of an upgrade node by node: a test must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from fifo.machine.state.records import State
from fifo.words import versions
from node.broker import upgrade
from node.broker.batcher import Batch
from node.broker.upgrade import Upgrade
from node.journal import notebook
from node.peers.handshake import ListenerSide
from node.peers.transport import PeerLink, TcpTransport
from node.peers.versions import PeerVersions
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.upgrade import test_peers as peers
from tests.upgrade import test_table as table
from tests.upgrade import test_upgrade as decision


def _on_scene(work: Callable[[decision.Scene], None]) -> Hunt:
    """A test of the decision, on a scene of its own."""
    return in_process(work, fixtures={"scene": lambda: nullcontext(decision.Scene())})


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a member of 0.1.0 is sent a frame that it does not know": (
        edited(PeerLink, "_is_proven", "if self._side.peer_tells:", "if True:"),
        in_process(peers.test_one_of_0_1_0_that_dials_is_sent_nothing_that_it_does_not_know),
    ),
    "a member of 0.1.0 is let in after the finish": (
        edited(ListenerSide, "_hello", "and not self.peer_tells", "and False"),
        in_process(peers.test_a_stranger_that_says_an_old_hello_is_refused),
    ),
    "a member that was away during the finish is shut out": (
        edited(ListenerSide, "_hello", "and not self.peer_tells", ""),
        in_process(peers.test_one_that_knows_of_the_end_speaks_to_one_that_does_not_yet, 0),
    ),
    "connections to members of 0.1.0 outlive the finish": (
        edited(TcpTransport, "use_protocol", "link.close()", "pass"),
        in_process(peers.test_one_of_0_1_0_is_disconnected_when_the_upgrade_is_finished),
    ),
    "the protocol in use falls": (
        edited(TcpTransport, "use_protocol", "max(self.versions.used, version)", "version"),
        in_process(peers.test_the_protocol_in_use_never_falls),
    ),
    "a member that is gone counts as heard": (
        edited(TcpTransport, "link_ended", "self.versions.heard.discard(link.peer)", "pass"),
        in_process(peers.test_members_say_what_they_can_once_they_are_proven),
    ),
    "a member that was never heard may stay": (
        edited(PeerVersions, "may_stay", "low <= self.used <= high", "True"),
        in_process(peers.test_a_member_that_was_never_heard_is_taken_for_one_of_0_1_0),
    ),
    "what is known already is noted again": (
        edited(PeerVersions, "said", "if self.known.get(name) != said:", "if True:"),
        in_process(peers.test_only_news_is_noted),
    ),
    "the version is raised while a member is down": (
        edited(Upgrade, "judged", "if name not in self._peers.heard", "if False"),
        _on_scene(decision.test_a_member_that_is_down_is_named_with_what_it_ran_last),
    ),
    "the version is raised while a member does not count": (
        edited(Upgrade, "judged", "in self._uncounted()", "in ()"),
        _on_scene(decision.test_a_member_that_does_not_count_is_named),
    ),
    "a member that was never heard is taken for a new one": (
        edited(Upgrade, "of", "self._peers.known.get(name, SILENT)", "self._peers.own"),
        _on_scene(decision.test_a_member_that_was_never_heard_is_named),
    ),
    "the version in use is what the leader knows, not what all know": (
        edited(versions, "newest_common", "if all(can(ranges, one) for ranges in members)", ""),
        in_process(table.test_the_newest_version_that_all_members_know_is_taken),
    ),
    "a part that a member does not name is one that it can speak": (
        edited(versions, "can", "part in ranges and ranges[part][0]", "ranges.get(part, (0,))[0]"),
        in_process(table.test_a_part_that_another_member_does_not_name_is_one_that_it_cannot_speak),
    ),
    "the peer port does not follow the version of the state": (
        edited(Upgrade, "follow", "self._use_protocol(", "print("),
        _on_scene(decision.test_the_peer_port_follows_the_version_of_the_state_once),
    ),
    "a new state begins with the newest version": (
        edited(State, "__init__", "self.version = versions.FIRST", "self.version = VERSION"),
        in_process(table.test_a_state_begins_with_the_first_version),
    ),
    "the entry that raises the version can be read by programs that do not know it": (
        edited(Batch, "parts", "self.version if self.version > version else version", "version"),
        in_process(decision.test_the_entry_that_raises_the_version_needs_it),
    ),
    "a damaged notebook is believed": (
        edited(notebook, "_decoded", 'checksum != b"%08x" % crc32c(notes)', "False"),
        in_process(decision.test_a_notebook_with_another_checksum_is_an_empty_one),
    ),
    "ill-formed notes are believed": (
        edited(upgrade, "_is_range", "list(map(type, value)) == [int, int]", "True"),
        in_process(decision.test_a_range_of_one_number_is_none),
    ),
}
"""By what is wrong."""

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("upgrade", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
