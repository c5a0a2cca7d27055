"""dramatiq's results by reply queue, on a cluster in the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
import pytest
from dramatiq.results import ResultFailure, ResultMissing, Results, ResultTimeout

import fifo.testing
from fifo.dramatiq import FifoBroker, FifoResultBackend, limits

pytestmark = pytest.mark.slow

SECONDS = 20.0
"""Longest wait for a result: far above what a busy machine takes."""

MILLISECONDS = int(SECONDS * 1000)


@pytest.fixture
def cluster() -> Iterator[fifo.testing.BlockingCluster]:
    with fifo.testing.cluster() as made:
        yield made


class Shop:
    """A process: those that work and those that send have the same actors."""

    def __init__(self, url: str) -> None:
        self.broker = FifoBroker(url)
        self.broker.add_middleware(Results(backend=FifoResultBackend(self.broker)))
        attempts: list[int] = []

        def half(number: int) -> float:
            if number % 2:
                raise ValueError(f"{number} is odd")
            return number / 2

        def many(count: int) -> Any:
            return "x" * count if count else object()

        def patient() -> int:
            attempts.append(1)
            if len(attempts) < 2:
                raise ValueError("not yet")
            return len(attempts)

        def silent() -> int:
            return 1

        self.half = dramatiq.actor(half, broker=self.broker, store_results=True, max_retries=0)
        self.many = dramatiq.actor(many, broker=self.broker, store_results=True, max_retries=0)
        self.patient = dramatiq.actor(
            patient, broker=self.broker, store_results=True, min_backoff=10, max_backoff=20
        )
        self.silent = dramatiq.actor(silent, broker=self.broker)


@contextmanager
def shop(url: str) -> Iterator[Shop]:
    """Messages ask the process's own broker for their results: the last one made, here."""
    found = Shop(url)
    dramatiq.set_broker(found.broker)
    try:
        yield found
    finally:
        found.broker.close()


@contextmanager
def working(url: str) -> Iterator[Shop]:
    with shop(url) as found:
        worker = dramatiq.Worker(found.broker, worker_timeout=100, worker_threads=2)
        worker.start()
        try:
            yield found
        finally:
            worker.stop()


def test_the_process_that_sent_a_message_gets_its_result(
    cluster: fifo.testing.BlockingCluster,
) -> None:
    with working(cluster.url), shop(cluster.url) as asking:
        sent = [asking.half.send(number) for number in range(0, 20, 2)]
        for _ in range(2):  # as often as it asks
            found = [one.get_result(block=True, timeout=MILLISECONDS) for one in sent]
            assert found == list(range(10))
        with pytest.raises(ResultFailure, match="actor raised ValueError: 7 is odd"):
            asking.half.send(7).get_result(block=True, timeout=MILLISECONDS)
        again = asking.patient.send()
        assert again.get_result(block=True, timeout=MILLISECONDS) == 2


def test_a_pipeline_and_a_group_have_results(cluster: fifo.testing.BlockingCluster) -> None:
    with working(cluster.url), shop(cluster.url) as asking:
        piped = (asking.half.message(16) | asking.half.message() | asking.half.message()).run()
        assert piped.get_result(block=True, timeout=MILLISECONDS) == 2
        assert piped.completed_count == 3
        together = dramatiq.group([asking.half.message(2), asking.half.message(4)]).run()
        assert list(together.get_results(block=True, timeout=MILLISECONDS)) == [1, 2]


def test_a_result_that_fits_into_no_message_is_an_error_and_the_actor_is_done(
    cluster: fifo.testing.BlockingCluster,
) -> None:
    with working(cluster.url), shop(cluster.url) as asking:
        for count in (2_000_000, 0):
            sent = asking.many.send(count)
            with pytest.raises(ResultFailure, match="the actor is done, and its result cannot"):
                sent.get_result(block=True, timeout=MILLISECONDS)
        asking.broker.join("default", timeout=MILLISECONDS)


def test_no_result_is_missing_or_late_and_one_that_is_not_stored_asks_for_none(
    cluster: fifo.testing.BlockingCluster,
) -> None:
    with shop(cluster.url) as asking:
        sent = asking.half.send(2)
        with pytest.raises(ResultMissing):
            sent.get_result()
        with pytest.raises(ResultTimeout):
            sent.get_result(block=True, timeout=50)
        assert "reply_to" not in asking.silent.send().options
        assert "reply_to" in sent.options


def test_a_process_that_forgets_keeps_no_more_than_its_bound(
    cluster: fifo.testing.BlockingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESULTS_MAX", 2)
    with working(cluster.url), shop(cluster.url) as asking:
        sent = [asking.half.send(2) for _ in range(5)]
        sent[-1].get_result(block=True, timeout=MILLISECONDS)
        kept = 0
        for one in sent:
            try:
                one.get_result()
                kept += 1
            except ResultMissing:
                continue
        assert 1 <= kept <= 2


def test_the_queue_of_a_process_is_declared_anew_where_it_is_gone(
    cluster: fifo.testing.BlockingCluster,
) -> None:
    with working(cluster.url), shop(cluster.url) as asking:
        sent = asking.half.send(2)
        assert sent.get_result(block=True, timeout=MILLISECONDS) == 1
        asking.broker.client.delete(sent.options["reply_to"])
        for thread in threading.enumerate():
            if thread.name == "fifo results":
                thread.join(SECONDS)
        assert asking.half.send(4).get_result(block=True, timeout=MILLISECONDS) == 2
