"""Confirms to a queue whose consumers fall behind wait, within a bound; all others go at once."""

from __future__ import annotations

import pytest

from node.broker import limits
from node.broker.requests.slowing import Slowing

pytestmark = pytest.mark.slow

QUEUE = 7
FAST = 40_000
"""Messages that the consumers ack in a second."""


class Cluster:
    """Time, and a queue as the replicated state shows it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.found: tuple[int, int] | None = (0, 0)
        self.slowing = Slowing(self, lambda: self.now)
        self.sent: list[int] = []

    def backlog(self, queue: int) -> tuple[int, int] | None:
        assert queue == QUEUE
        return self.found

    def confirm(self, number: int) -> None:
        self.slowing.confirm(QUEUE, lambda: self.sent.append(number))

    def goes_on(self, seconds: float, rate: float, ready: int) -> None:
        """Advance the time, in which consumers ack; `ready` messages are left in the end."""
        while seconds > 0:
            step = min(seconds, limits.LOOK_SECONDS)
            seconds -= step
            self.now += step
            assert self.found is not None
            self.found = ready, self.found[1] + round(rate * step)
            self.slowing.look()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def behind(cluster: Cluster) -> None:
    """Consumers that ack quickly, and more ready than they take in a short time."""
    cluster.found = limits.BACKLOG_MIN + 1, 0
    cluster.confirm(0)
    cluster.goes_on(2 * limits.RATE_SECONDS, FAST, ready=2 * limits.BACKLOG_MIN)
    cluster.sent.clear()


def test_a_confirm_waits_until_the_consumers_have_caught_up(cluster: Cluster) -> None:
    behind(cluster)
    cluster.confirm(1)
    cluster.confirm(2)
    cluster.goes_on(limits.LOOK_SECONDS, FAST, ready=2 * limits.BACKLOG_MIN)
    assert cluster.sent == []
    cluster.goes_on(limits.LOOK_SECONDS, FAST, ready=100)
    assert cluster.sent == [1, 2]
    assert not cluster.slowing.queues


def test_a_confirm_waits_no_longer_than_its_bound(cluster: Cluster) -> None:
    behind(cluster)
    cluster.confirm(1)
    cluster.goes_on(limits.SLOWED_SECONDS_MAX / 2, FAST, ready=9 * limits.BACKLOG_MIN)
    cluster.confirm(2)
    assert cluster.sent == []
    wait = limits.SLOWED_SECONDS_MAX / 2 + limits.LOOK_SECONDS
    cluster.goes_on(wait, FAST, ready=9 * limits.BACKLOG_MIN)
    assert cluster.sent == [1]


def test_a_confirm_passes_none_that_waits(cluster: Cluster) -> None:
    """Though the consumers have caught up meanwhile, and no look has found it yet."""
    behind(cluster)
    cluster.confirm(1)
    assert cluster.found is not None
    cluster.found = 0, cluster.found[1]
    cluster.confirm(2)
    assert cluster.sent == []
    cluster.slowing.look()
    assert cluster.sent == [1, 2]


def test_publishers_of_a_queue_without_consumers_wait_for_nothing(cluster: Cluster) -> None:
    cluster.found = 100 * limits.BACKLOG_MIN, 0
    for number in range(100):
        cluster.confirm(number)
        cluster.goes_on(limits.LOOK_SECONDS, 0, ready=100 * limits.BACKLOG_MIN)
        assert cluster.sent[-1] == number


def test_publishers_of_jobs_that_take_long_wait_for_nothing(cluster: Cluster) -> None:
    cluster.found = 100 * limits.BACKLOG_MIN, 0
    for number in range(100):
        cluster.confirm(number)
        rate = limits.STREAM_RATE_MIN / 2
        cluster.goes_on(limits.LOOK_SECONDS, rate, ready=100 * limits.BACKLOG_MIN)
        assert cluster.sent[-1] == number


def test_a_short_backlog_slows_nothing(cluster: Cluster) -> None:
    cluster.found = limits.BACKLOG_MIN, 0
    for number in range(100):
        cluster.confirm(number)
        cluster.goes_on(limits.LOOK_SECONDS, FAST, ready=limits.BACKLOG_MIN)
        assert cluster.sent[-1] == number
    assert not cluster.slowing.queues


def test_consumers_that_go_hold_up_no_confirm(cluster: Cluster) -> None:
    behind(cluster)
    cluster.confirm(1)
    cluster.goes_on(2 * limits.RATE_SECONDS, 0, ready=9 * limits.BACKLOG_MIN)
    cluster.confirm(2)
    assert cluster.sent == [1, 2]


def test_a_queue_that_is_deleted_holds_up_no_confirm(cluster: Cluster) -> None:
    behind(cluster)
    cluster.confirm(1)
    cluster.found = None
    cluster.slowing.look()
    assert cluster.sent == [1]
    assert not cluster.slowing.queues


def test_the_end_of_a_term_sends_all_that_waits(cluster: Cluster) -> None:
    behind(cluster)
    cluster.confirm(1)
    cluster.slowing.stop()
    assert cluster.sent == [1]
    assert not cluster.slowing.queues
