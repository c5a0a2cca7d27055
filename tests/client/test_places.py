"""The choice of places behind `prefetch="auto"`, without any connection."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fifo.client import limits
from fifo.client.consuming.places import Places
from fifo.machine.limits import SINGLE_ACTIVE_PREFETCH

MOST = 10_000


@dataclass
class Worker:
    """A queue that is never empty, a round trip away from handlers that take a fixed time each."""

    handler_s: float
    round_trip_s: float
    tasks: int = 1
    size: int = 100
    lock_s: float = 30.0
    settles: bool = True
    now: float = 0.0
    held: int = 0
    busy: int = 0
    waiting: int = 0
    finished: int = 0
    buffer: list[float] = field(default_factory=list)
    events: list[tuple[float, int, str, int]] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.places = Places(MOST, self.lock_s, 0.0)
        self.allowed = self.granted = 0
        self._order = 0
        self.waiting = self.tasks
        self._at(0.0, "grant", 1)

    def _at(self, after_s: float, what: str, count: int) -> None:
        self._order += 1
        heapq.heappush(self.events, (self.now + after_s, self._order, what, count))

    def run(self, seconds: float) -> Worker:
        """Go on for this long."""
        end = self.now + seconds
        while self.events and self.events[0][0] <= end:
            self.now, _, what, count = heapq.heappop(self.events)
            getattr(self, f"_{what}")(count)
            assert 1 <= self.places.count <= MOST
            self.seen.append(self.places.count)
        self.now = end
        return self

    def _changed(self, changed: bool) -> None:
        if changed:
            self._at(self.round_trip_s, "grant", self.places.count)

    def _grant(self, count: int) -> None:
        self.allowed = count
        self._fill()

    def _fill(self) -> None:
        more = self.allowed - self.granted
        if more > 0:
            self.granted += more
            self._deliver(more)

    def _deliver(self, count: int) -> None:
        self.held += count
        waited = self.waiting > 0
        self._changed(self.places.delivered(self.now, count, count * self.size, waiting=waited))
        self.buffer += [self.now] * count
        while self.waiting and self.buffer:
            self.waiting -= 1
            self._take()
        if self.waiting:
            self._starve()

    def _take(self) -> None:
        received = self.buffer.pop(0)
        self._changed(self.places.handed_out(self.now, received, in_hand=self.busy))
        self.busy += 1
        if self.settles:
            self._at(self.handler_s, "finish", 1)
        else:
            self._at(0.0, "ask", 1)

    def _finish(self, _: int) -> None:
        self.busy -= 1
        self.finished += 1
        self._at(self.round_trip_s, "answer", 1)
        self._ask(1)

    def _ask(self, _: int) -> None:
        if self.buffer:
            self._take()
        else:
            self.waiting += 1
            self._starve()

    def _answer(self, count: int) -> None:
        self.held -= count
        self.granted -= count
        if self.waiting and not self.buffer:
            self._starve()  # the answer is read before the delivery that it made room for
        self._fill()

    def _starve(self) -> None:
        self._changed(
            self.places.starved(self.now, held=self.held, in_hand=self.busy, waiting=self.waiting)
        )


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(handler_ms=st.floats(0.5, 20), round_trip_ms=st.floats(1, 100), tasks=st.integers(1, 8))
@example(handler_ms=0.5, round_trip_ms=100, tasks=8)
@example(handler_ms=20, round_trip_ms=100, tasks=1)
def test_the_places_cover_rate_times_round_trip_within_a_factor_of_two(
    handler_ms: float, round_trip_ms: float, tasks: int
) -> None:
    turn_s = (handler_ms + round_trip_ms) / 1000
    worker = Worker(handler_ms / 1000, round_trip_ms / 1000, tasks).run(30 * turn_s)
    needed = tasks + tasks * round_trip_ms / handler_ms
    assert worker.places.count <= math.ceil(2 * needed) + tasks + 1
    # All but the time that is not worth a place: a fiftieth.
    before, at = worker.finished, worker.now
    worker.run(20 * turn_s)
    rate = (worker.finished - before) / (worker.now - at)
    assert rate >= 0.9 * tasks / (handler_ms / 1000) - 2 * tasks / (worker.now - at)


@settings(max_examples=30, deadline=None)
@given(hours=st.floats(0.001, 3), round_trip_ms=st.floats(1, 15), tasks=st.integers(1, 60))
def test_a_slow_worker_holds_one_message_for_each_of_its_tasks(
    hours: float, round_trip_ms: float, tasks: int
) -> None:
    worker = Worker(hours * 3600, round_trip_ms / 1000, tasks).run(hours * 3600 * 5.5)
    assert max(worker.seen) <= tasks
    assert Places(MOST, 30.0, 0.0).count == 1


def test_a_worker_that_becomes_slow_gives_its_places_up() -> None:
    worker = Worker(0.0005, 0.02).run(1.0)
    fast = worker.places.count
    worker.handler_s = 2.0
    worker.run(fast * 5.0)
    assert fast > 40
    assert worker.places.count == 1


def test_a_short_lock_bounds_what_is_buffered() -> None:
    worker = Worker(0.2, 0.01, lock_s=1.0).run(60.0)
    assert worker.places.count == 1  # a second message would wait for 0.2 s, an eighth is 0.125 s


def test_a_program_that_settles_nothing_gets_a_hundred_and_no_more() -> None:
    worker = Worker(1.0, 0.005, settles=False).run(60.0)
    assert worker.busy == limits.PLACES_IN_HAND
    assert worker.places.count == limits.PLACES_IN_HAND


def test_each_of_many_waiting_tasks_gets_a_place_at_once() -> None:
    worker = Worker(60.0, 0.005, tasks=500).run(0.1)
    assert worker.places.count == 500
    assert worker.busy == 500


def test_a_program_with_a_task_for_each_message_is_bounded() -> None:
    """Its database takes 100 a second, however many it is asked at once."""
    places = Places(MOST, 30.0, 0.0)
    now = 0.0
    for _ in range(10_000):
        now += 0.01
        held = places.count
        settling = min(1, held)
        places.starved(now, held=held, in_hand=held - settling, waiting=1)
        places.delivered(now + 0.005, 1, 100, waiting=True)
    assert places.count <= limits.PLACES_IN_HAND + 3


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1 << 20)), min_size=1))
def test_bodies_in_all_places_stay_below_the_bound_by_their_mean(
    deliveries: list[tuple[int, int]],
) -> None:
    places = Places(MOST, 30.0, 0.0)
    now = 0.0
    bodies = messages = 0.0
    for count, size in deliveries:
        for _ in range(3):
            now += 0.01
            places.starved(now, held=places.count, in_hand=0, waiting=1)
            places.delivered(now + 0.009, count, count * size, waiting=True)
            bodies = bodies * limits.SIZE_MEMORY + count * size
            messages = messages * limits.SIZE_MEMORY + count
            allowed = max(1, limits.PLACES_BYTES * messages / bodies)
            assert 1 <= places.count <= min(allowed, MOST)


@pytest.mark.parametrize("held", [0, 10, 74])
def test_an_empty_queue_is_no_reason_for_places(held: int) -> None:
    places = Places(MOST, 30.0, 0.0)
    places.starved(0.0, held=1, in_hand=0, waiting=99)
    places.delivered(0.01, 1, 100, waiting=True)
    assert places.count == 101
    assert not places.starved(0.1, held=held, in_hand=0, waiting=1)
    assert not places.delivered(0.2, 1, 100, waiting=True)


def crowded(held: int, wanted: int = 1) -> Places:
    """A consumer with 301 places, `held` of which are taken when all keys are out."""
    places = Places(MOST, 30.0, 0.0)
    places.starved(0.0, held=1, in_hand=0, waiting=299)
    places.delivered(0.01, 1, 100, waiting=True)
    assert places.count == 301
    places.keys_out(0.02, held=held, wanted=wanted)
    return places


def test_where_all_keys_are_out_a_quarter_of_what_is_held_is_given_back() -> None:
    assert crowded(200).count == 150
    assert crowded(20).count == limits.KEYS_OUT_PLACES, "few keys are worth a place each"
    assert crowded(200, wanted=199).count == 199, "a place for each task of the program"
    assert crowded(301).count == 301, "from before the last places were given back"


def test_where_all_keys_are_out_no_round_trip_is_a_reason_for_places_for_a_while() -> None:
    places = crowded(200)
    for now, count in (
        (limits.KEYS_OUT_S - 0.1, 150),
        (limits.KEYS_OUT_S + 0.1, 2 * 150 + 1),
    ):
        for before_s in (0.02, 0.01):  # what comes is quick
            places.delivered(now - before_s, 150, 100, waiting=True)
        places.starved(now, held=150, in_hand=0, waiting=1)
        places.delivered(now + 0.01, 150, 100, waiting=True)
        assert places.count == count


def test_where_all_keys_are_out_each_waiting_task_gets_a_place() -> None:
    places = crowded(20)
    assert places.starved(0.03, held=places.count, in_hand=places.count, waiting=30)
    assert places.count == limits.KEYS_OUT_PLACES + 30


def test_one_place_stays_beside_lost_messages_within_a_bound() -> None:
    places = Places(MOST, 30.0, 0.0)
    assert places.beside(1)
    assert places.count == 2
    assert places.beside(500)
    assert places.count == limits.PLACES_IN_HAND + 1
    assert places.rest()
    assert places.count == 1


def test_a_single_active_queue_takes_every_number() -> None:
    assert limits.PLACES_MAX <= SINGLE_ACTIVE_PREFETCH
