"""The thread of the demo's source that notes when calls are answered."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any, cast

import pytest

from bench.demo import source
from bench.demo.source import Answers

pytestmark = pytest.mark.slow

SECONDS = 20.0


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that gives each look the next number, and the numbers that it gave."""
    given: list[int] = []

    def now_ms() -> int:
        given.append(len(given) + 1)
        return given[-1]

    monkeypatch.setattr(source, "now_ms", now_ms)
    return given


def test_answers_have_their_times_in_the_order_of_the_calls_also_where_they_are_errors(
    ticks: list[int],
) -> None:
    calls: list[Future[Any]] = [Future() for _ in range(4)]
    with Answers() as answers:
        for call in calls:
            answers.watch(cast("Any", call))
        calls[1].set_result(None)
        assert ticks == [], "an answer waits for those of earlier calls"
        calls[0].set_exception(OSError("no leader"))
        assert [answers.next_ms(), answers.next_ms()] == [1, 2]
        calls[2].cancel()
        calls[3].set_result(None)
        assert [answers.next_ms(), answers.next_ms()] == [3, 4]


def test_the_thread_ends_with_its_block_and_notes_first_what_it_watches(ticks: list[int]) -> None:
    call: Future[Any] = Future()
    with Answers() as answers:
        (thread,) = (one for one in threading.enumerate() if one.name == "answers")
        answers.watch(cast("Any", call))
        timer = threading.Timer(0.0, call.set_result, [None])
        timer.start()
    timer.join(SECONDS)
    assert not thread.is_alive()
    assert ticks == [1]
