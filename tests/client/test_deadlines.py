"""Waits that end at a time of their own share one timer, and keep nothing that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fifo.client import limits
from fifo.client.connection.calls import EXPIRED
from fifo.client.connection.deadlines import Deadlines

pytestmark = pytest.mark.slow


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time stands until the next timer, and counts the timers that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.timers = 0

    def time(self) -> float:
        return self.now

    def call_at(  # type: ignore[override]  # whatever its form
        self, *args: Any, **more: Any
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(*args, **more)


@pytest.fixture
def loop() -> Iterator[Clock]:
    loop = Clock()
    yield loop
    loop.close()


def ended(loop: Clock, at: float) -> None:
    """Run all that is due at this time."""
    loop.now = at
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()


def test_each_wait_ends_at_its_own_time_and_all_have_one_timer(loop: Clock) -> None:
    deadlines = Deadlines(loop)
    waits = [loop.create_future() for _ in range(10)]
    for second, wait in enumerate(waits, 1):
        deadlines.add(wait, float(second))
    assert loop.timers == 1
    ended(loop, 4.0)
    assert [wait.done() for wait in waits] == [True] * 4 + [False] * 6
    assert all(wait.result() is EXPIRED for wait in waits[:4])
    ended(loop, 10.0)
    assert all(wait.result() is EXPIRED for wait in waits)
    assert len(deadlines) == 0


def test_a_wait_that_ends_sooner_than_those_before_it_is_not_late(loop: Clock) -> None:
    deadlines = Deadlines(loop)
    long, short = loop.create_future(), loop.create_future()
    deadlines.add(long, 60.0)
    deadlines.add(short, 1.0)
    ended(loop, 1.0)
    assert short.result() is EXPIRED
    assert not long.done()
    deadlines.stop()


def test_an_answer_in_time_stays(loop: Clock) -> None:
    deadlines = Deadlines(loop)
    wait, gone = loop.create_future(), loop.create_future()
    deadlines.add(wait, 1.0)
    deadlines.add(gone, 1.0)
    wait.set_result("answer")
    gone.cancel()
    ended(loop, 2.0)
    assert wait.result() == "answer"
    assert gone.cancelled()


def test_waits_that_have_ended_are_not_kept_behind_one_that_lasts(loop: Clock) -> None:
    deadlines = Deadlines(loop)
    deadlines.add(loop.create_future(), 60.0)
    for _ in range(3 * limits.DEADLINES_KEPT):
        wait = loop.create_future()
        deadlines.add(wait, 61.0)
        wait.set_result(None)
    assert len(deadlines) <= limits.DEADLINES_KEPT
    deadlines.stop()


def test_what_was_stopped_leaves_no_timer(loop: Clock) -> None:
    deadlines = Deadlines(loop)
    wait = loop.create_future()
    deadlines.add(wait, 1.0)
    deadlines.stop()
    ended(loop, 2.0)
    assert not wait.done()
