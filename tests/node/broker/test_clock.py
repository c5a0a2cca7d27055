"""Cluster time: anchored once per term, never backwards, gaps count as a second at most."""

from __future__ import annotations

from collections import deque

import pytest

from node.broker.clock import ClusterClock


class FakeTime:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def leading(time: FakeTime, at_ms: int = 0) -> ClusterClock:
    clock = ClusterClock(time)
    clock.stand(at_ms)
    clock.lead(at_ms)
    return clock


def test_ten_seconds_of_entries_every_2_ms_at_8_ms_latency_advance_ten_seconds(
    time: FakeTime,
) -> None:
    clock = leading(time)
    in_flight: deque[tuple[float, int]] = deque()
    cluster_time_ms = 0
    for _ in range(5000):
        time.seconds += 0.002
        in_flight.append((time.seconds + 0.008, clock.stamp_ms()))
        while in_flight and in_flight[0][0] <= time.seconds:
            cluster_time_ms = max(cluster_time_ms, in_flight.popleft()[1])
    assert cluster_time_ms == pytest.approx(10_000, rel=0.01)


def test_a_follower_is_based_anew_at_every_entry_also_downwards(time: FakeTime) -> None:
    clock = ClusterClock(time)
    clock.follow(5_000)
    time.seconds += 0.5
    assert clock.now_ms() == 5_500
    clock.follow(5_100)
    assert clock.now_ms() == 5_100


def test_a_pause_of_an_hour_counts_as_one_second(time: FakeTime) -> None:
    clock = leading(time)
    time.seconds += 3600
    assert clock.look() == pytest.approx(3600)
    assert clock.now_ms() == 1_000
    time.seconds += 0.25
    assert clock.now_ms() == 1_250


def test_a_new_leader_stamps_lead_with_the_later_of_its_log_and_its_estimate(
    time: FakeTime,
) -> None:
    clock = ClusterClock(time)
    clock.follow(10_000)
    time.seconds += 0.75
    assert clock.stand(10_200) == 10_750
    other = ClusterClock(time)
    other.follow(10_000)
    assert other.stand(12_000) == 12_000


def test_a_proposal_before_lead_is_applied_carries_the_stamp_of_lead(time: FakeTime) -> None:
    clock = ClusterClock(time)
    clock.follow(10_000)
    stamp = clock.stand(10_000)
    time.seconds += 0.5
    assert clock.stamp_ms() == stamp
    clock.lead(10_000)
    time.seconds += 0.5
    assert clock.stamp_ms() == 10_500


def test_a_stamp_is_never_below_one_given_before(time: FakeTime) -> None:
    clock = leading(time, 1_000)
    time.seconds += 0.5
    assert clock.stamp_ms() == 1_500
    time.seconds -= 10  # A clock that steps back is no monotonic clock; still nothing runs back.
    assert clock.stamp_ms() == 1_500


def test_a_clock_that_has_led_follows_again(time: FakeTime) -> None:
    clock = leading(time, 1_000)
    time.seconds += 0.9
    clock.follow(1_200)
    time.seconds += 0.1
    assert clock.now_ms() == 1_300
