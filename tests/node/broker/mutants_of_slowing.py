"""Plausible bugs of confirms that wait: a test of their parts must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from node.broker.requests import slowing
from node.broker.requests.slowing import Slowing
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.broker import test_slowing as tests


@contextmanager
def _cluster() -> Iterator[tests.Cluster]:
    """Time, and a queue."""
    yield tests.Cluster()


def _test(work: Callable[[tests.Cluster], None]) -> Hunt:
    """A test of the parts."""
    return in_process(work, fixtures={"cluster": _cluster})


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "no confirm waits": (
        edited(
            Slowing,
            "confirm",
            "found is None or not backlog.is_behind(found[0])",
            "True",
        ),
        _test(tests.test_a_confirm_waits_until_the_consumers_have_caught_up),
    ),
    "a confirm waits until the consumers have caught up, however long that takes": (
        edited(Slowing, "look", "backlog.release(now)\n", "pass\n"),
        _test(tests.test_a_confirm_waits_no_longer_than_its_bound),
    ),
    "a confirm passes those that wait": (
        edited(Slowing, "confirm", "if not backlog.held:", "if True:"),
        _test(tests.test_a_confirm_passes_none_that_waits),
    ),
    "publishers of jobs that take long are slowed": (
        edited(
            slowing._Backlog,
            "is_behind",
            "self.rate >= limits.STREAM_RATE_MIN",
            "self.rate > 0",
        ),
        _test(tests.test_publishers_of_jobs_that_take_long_wait_for_nothing),
    ),
    "publishers of a queue without consumers are slowed": (
        edited(slowing._Backlog, "is_behind", "self.rate >= limits.STREAM_RATE_MIN and ", ""),
        _test(tests.test_publishers_of_a_queue_without_consumers_wait_for_nothing),
    ),
    "the rate of consumers that have gone stands": (
        edited(slowing._Backlog, "measure", "passed >= limits.RATE_SECONDS", "not self.rate"),
        _test(tests.test_consumers_that_go_hold_up_no_confirm),
    ),
    "confirms of a queue that is deleted wait for ever": (
        edited(
            Slowing,
            "look",
            "backlog.release(now + limits.SLOWED_SECONDS_MAX)",
            "found is not None and backlog.release(now + limits.SLOWED_SECONDS_MAX)",
        ),
        _test(tests.test_a_queue_that_is_deleted_holds_up_no_confirm),
    ),
    "the end of a term leaves confirms waiting": (
        edited(
            Slowing,
            "stop",
            "backlog.release(self._now() + limits.SLOWED_SECONDS_MAX)",
            "pass",
        ),
        _test(tests.test_the_end_of_a_term_sends_all_that_waits),
    ),
}

MUTANTS = tuple(
    Mutant("slowing", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
