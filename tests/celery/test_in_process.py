"""A worker of Celery in the process of a test, on a cluster of `fifo.testing`."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from celery import Celery
from celery.signals import before_task_publish

import fifo.testing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::celery.exceptions.SecurityWarning"),  # of running as root
]

SECONDS = 30.0
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_worker_runs_on_a_cluster_in_the_process_and_keeps_the_trace() -> None:
    """Celery's own instrumentation writes its context where this signal does."""
    ran = threading.Event()
    found: list[Any] = []

    def inject(headers: dict[str, Any], **_: object) -> None:
        headers["traceparent"] = TRACEPARENT

    with fifo.testing.cluster() as cluster:
        app = Celery("shop", broker=cluster.url, set_as_current=False)
        app.conf.update(worker_hijack_root_logger=False, worker_redirect_stdouts=False)

        @app.task(bind=True)  # type: ignore[untyped-decorator]  # celery has no types
        def ship(self: Any, number: int) -> None:
            found.append((number, self.request.get("traceparent")))
            ran.set()

        worker = app.Worker(pool="solo", quiet=True, without_gossip=True, without_mingle=True)
        thread = threading.Thread(target=worker.start, daemon=True)
        before_task_publish.connect(inject)
        try:
            thread.start()
            ship.delay(7)
            assert ran.wait(SECONDS)
        finally:
            before_task_publish.disconnect(inject)
            worker.stop()
            thread.join(SECONDS)
            app.close()
        assert not thread.is_alive()
        assert cluster.queue("celery").view.messages == 0
    assert found == [(7, TRACEPARENT)]
