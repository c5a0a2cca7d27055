"""A worker of Celery in the process of a test, on a cluster of `fifo.testing`."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import before_task_publish, setup_logging
from kombu import Connection

import fifo
import fifo.testing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::celery.exceptions.SecurityWarning"),  # of running as root
]

SECONDS = 30.0
LOOK_SECONDS = 0.02
LATE_SECONDS = 120.0
"""A task runs on a thread: `advance` may have passed all of its time by then."""
EARLY_SECONDS = 10.0
"""From Celery's reckoning of an ETA to its publish, which does not pass in the cluster."""
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def working(app: Celery) -> Iterator[None]:
    """A worker of the app, in a thread, as Celery's own test kit starts one."""
    app.conf.update(worker_redirect_stdouts=False)
    setup_logging.connect(_leave_logging_alone)
    try:
        with start_worker(app, perform_ping_check=False, shutdown_timeout=SECONDS):
            yield
    finally:
        setup_logging.disconnect(_leave_logging_alone)
    app.close()


def _leave_logging_alone(**_: object) -> None:
    """Stand in for Celery's own set-up, which would silence the warnings of all later tests."""


def test_a_worker_runs_on_a_cluster_in_the_process_and_keeps_the_trace() -> None:
    """Celery's own instrumentation writes its context where this signal does."""
    ran = threading.Event()
    found: list[Any] = []

    def inject(headers: dict[str, Any], **_: object) -> None:
        headers["traceparent"] = TRACEPARENT

    with fifo.testing.cluster() as cluster:
        app = Celery("shop", broker=cluster.url, set_as_current=False)

        @app.task(bind=True)  # type: ignore[untyped-decorator]  # celery has no types
        def ship(self: Any, number: int) -> None:
            found.append((number, self.request.get("traceparent")))
            ran.set()

        before_task_publish.connect(inject)
        try:
            with working(app):
                ship.delay(7)
                assert ran.wait(SECONDS)
        finally:
            before_task_publish.disconnect(inject)
        assert cluster.queue("celery").view.messages == 0
    assert found == [(7, TRACEPARENT)]


def test_advance_brings_an_eta_and_a_retry_forward_and_loses_no_session() -> None:
    ran: queue.Queue[tuple[str, float]] = queue.Queue()
    began = time.monotonic()
    with fifo.testing.cluster() as cluster:
        app = Celery("shop", broker=cluster.url, set_as_current=False, task_acks_late=True)

        @app.task(bind=True)  # type: ignore[untyped-decorator]  # celery has no types
        def remind(self: Any) -> None:
            ran.put((f"attempt {self.request.retries}", cluster.now))
            if not self.request.retries:
                self.retry(countdown=180)

        with working(app):
            sent_at = cluster.now
            remind.apply_async(countdown=360)
            assert cluster.queue("celery").view.delayed == 1
            cluster.advance(minutes=5)
            assert ran.empty()
            cluster.advance(minutes=2)
            what, at = ran.get(timeout=SECONDS)
            assert what == "attempt 0"
            assert 360 - EARLY_SECONDS <= at - sent_at <= 360 + LATE_SECONDS
            _until(lambda: cluster.queue("celery").view.delayed == 1)  # of its retry
            cluster.advance(minutes=4)
            what, at = ran.get(timeout=SECONDS)
            assert what == "attempt 1"
            assert at - sent_at >= 540 - 2 * EARLY_SECONDS
            _until(lambda: cluster.queue("celery").view.messages == 0)
    assert time.monotonic() - began < 60


def test_a_worker_in_the_process_leaves_the_root_logger_as_it_was() -> None:
    """Another level, or other handlers, would last for all later tests."""
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    with fifo.testing.cluster() as cluster:
        with working(Celery("shop", broker=cluster.url, set_as_current=False)):
            assert (root.level, list(root.handlers)) == before
        assert (root.level, list(root.handlers)) == before


async def test_a_blocking_call_on_the_loop_of_the_cluster_is_refused() -> None:
    async with fifo.testing.cluster() as cluster:
        with (
            Connection(cluster.url, connect_timeout=1) as connection,
            pytest.raises(fifo.InvalidArgument, match="kombu would stop the event loop"),
        ):
            connection.connect()


def _until(look: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while not look():
        assert time.monotonic() < deadline
        pause.wait(LOOK_SECONDS)
