"""Plausible bugs of a leader that moves for clients that cannot reach it: each has to be noticed.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fifo.client.connection.dialing import Dialer
from node.broker import unreached
from node.broker.broker import Broker
from node.broker.connections.handshake import Handshake
from node.broker.unreached import Complaints, Moves
from node.raft.core import Core
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.broker import test_unreached as tests
from tests.sim import test_unreached as whole


@contextmanager
def _follower() -> Iterator[tests.Follower]:
    """A follower and the time."""
    yield tests.Follower()


def _test(work: Callable[..., object], *values: object) -> Hunt:
    """A test of the parts, or of the whole in the simulator."""
    return in_process(work, *values, fixtures={"follower": _follower})


_CUT = _test(whole.test_clients_that_reach_followers_only_are_served_within_twenty_seconds, "both")
_AGAIN = _test(whole.test_a_cut_that_follows_the_leader_moves_it_twice_in_a_minute_at_most)

BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a client does not say that it cannot reach the leader": (
        edited(Dialer, "_unreached", "return name if", 'return "" if'),
        _CUT,
    ),
    "a follower does not tell its leader": (
        edited(Broker, "_look_for_unreached", "self._raft.tell_leader(note)", "pass"),
        _CUT,
    ),
    "a leader takes no note": (
        edited(Core, "on_note", 'self.notes[node.id] = message["data"], self.clock()', "pass"),
        _CUT,
    ),
    "a leader moves for its clients whenever they ask": (
        edited(Moves, "may", "limits.LEADER_MOVE_SECONDS", "0"),
        _AGAIN,
    ),
    "a new leader may move at once": (
        edited(Broker, "on_role", "self._moves.begin()", "pass"),
        _AGAIN,
    ),
    "a leader moves for any client": (
        edited(unreached, "better_node", "count > left", "count"),
        _test(whole.test_the_leader_stays_where_the_cut_takes_a_minority_of_its_clients),
    ),
    "a leader moves for as many clients as it serves": (
        edited(unreached, "better_node", "count > left", "count >= left and count"),
        _test(tests.test_a_leader_goes_by_the_greater_number_of_clients),
    ),
    "a client that hears nothing counts as served": (
        edited(unreached, "better_node", " - unserved", ""),
        _test(tests.test_a_client_whose_words_arrive_and_that_hears_nothing_is_not_served),
    ),
    "a client counts at once": (
        edited(Complaints, "due", "said.first <= last", "True"),
        _test(tests.test_a_client_counts_when_it_has_said_so_for_some_seconds),
    ),
    "a client counts for ever": (
        edited(Complaints, "_forget", "limits.UNREACHED_SECONDS", "1e9"),
        _test(tests.test_a_client_that_says_so_no_more_is_forgotten),
    ),
    "what was said of an earlier leader counts": (
        edited(Complaints, "_forget", "self._said.clear()", "pass"),
        _test(tests.test_what_was_said_of_another_leader_or_term_does_not_count),
    ),
    "a follower remembers any number of clients": (
        edited(Complaints, "wanted", "len(self._said) < limits.UNREACHED_SESSIONS_MAX", "True"),
        _test(tests.test_a_follower_remembers_a_bounded_number_of_them),
    ),
    "a follower checks who it is at each hello": (
        edited(Complaints, "wanted", "limits.UNREACHED_NEWS_SECONDS", "0"),
        _test(tests.test_a_client_is_not_asked_again_at_once_who_it_is),
    ),
    "the word of a stranger counts": (
        edited(
            Handshake,
            "hello",
            "elif self._passed_on(hello) and not self._complains(hello):",
            "elif self._passed_on(hello):\n"
            "        if hello.unreached:\n"
            "            self._complaints.note(hello.session, hello.unreached)",
        ),
        _test(tests.test_only_the_word_of_a_user_counts),
    ),
    "a follower refuses a client that it does not know": (
        edited(Handshake, "_decided", " and self._passed_on(hello)", " and False"),
        _test(tests.test_only_the_word_of_a_user_counts),
    ),
}

MUTANTS = tuple(
    Mutant("unreached", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
