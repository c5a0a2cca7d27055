"""A worker of Celery in the process of a test, on a cluster of `fifo.testing`."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import before_task_publish, setup_logging
from kombu import Connection

import fifo
import fifo.blocking
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


def test_what_cannot_be_read_is_kept_and_stops_no_worker() -> None:
    """Celery acknowledges a body that it cannot decode, and ends at what the transport raises."""
    ran = threading.Event()
    with fifo.testing.cluster() as cluster, fifo.blocking.connect(cluster.url) as client:
        app = Celery("shop", broker=cluster.url, set_as_current=False)

        @app.task(name="ship")  # type: ignore[untyped-decorator]  # celery has no types
        def ship() -> None:
            ran.set()

        with working(app):
            for body, headers in UNREADABLE:
                client.publish("celery", body, headers=headers)
            ship.delay()
            assert ran.wait(SECONDS)
            _until(lambda: len(cluster.queue("celery").dead) == len(UNREADABLE))
        found = [one.dead_letter for one in cluster.queue("celery").dead]
        details = sorted(str(one.detail) for one in found if one)
        assert details == [*3 * ["cannot be decoded"], "rejected"]
        assert cluster.queue("celery").view.messages == 0


def _of_a_task(**headers: str) -> dict[str, str]:
    own = {"type": "application/json", "encoding": "utf-8"}
    return {"kombu": json.dumps({**own, "headers": {"task": "ship", "id": "1", **headers}})}


UNREADABLE: Final[tuple[tuple[bytes, dict[str, str]], ...]] = (
    (b"[[], {}, {}]", {"kombu": "{"}),
    (b"{", _of_a_task()),
    (b"x", _of_a_task(compression="application/x-gzip")),
    (b"from a program that knows nothing of Celery", {}),
)
"""Bodies and headers: a header of no transport, no JSON, nothing compressed, no task."""


def test_a_task_that_takes_longer_than_any_lock_keeps_its_own_and_runs_once() -> None:
    """Longer than the `max_lock` of its queue, too: as a task of two hours does, in less time."""
    began, end = threading.Semaphore(0), threading.Event()
    with fifo.testing.cluster() as cluster:
        app = Celery("shop", broker=cluster.url, set_as_current=False, task_acks_late=True)
        app.conf.broker_transport_options = {"queue": {"lock": 10, "max_lock": 30}}

        @app.task  # type: ignore[untyped-decorator]  # celery has no types
        def count() -> None:
            began.release()
            end.wait(SECONDS)

        with working(app):
            count.delay()
            assert began.acquire(timeout=SECONDS)
            cluster.advance(minutes=3)
            view = cluster.queue("celery").view
            assert (view.locked, view.ready) == (1, 0)
            end.set()
            _until(lambda: cluster.queue("celery").view.messages == 0)
        assert not began.acquire(blocking=False), "it ran again"


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
