"""A Celery app as people write them, for workers that tests start: each run of a task is a line."""

from __future__ import annotations

import os

from celery import Celery

LATE, EARLY = "tests.celery.app.late", "tests.celery.app.early"


def made(url: str | None) -> Celery:
    """An app of this broker: the workers' one, or one that sends."""
    found = Celery("drill", broker=url, backend="rpc://")
    found.conf.broker_transport_options = {"queue": {"lock": 2}}
    found.conf.task_routes = {LATE: "late", EARLY: "early"}
    found.conf.worker_send_task_events = True
    found.conf.broker_connection_retry_on_startup = True
    return found


app = made(os.environ.get("DRILL_URL"))


def note(*words: object) -> None:
    """Append a line to the log of runs: one write, so that processes share the file."""
    with open(os.environ["DRILL_LOG"], "ab", buffering=0) as log:
        log.write((" ".join(map(str, words)) + "\n").encode())


@app.task(acks_late=True)  # type: ignore[untyped-decorator]  # celery has no types
def late(number: int) -> None:
    """Acknowledged after it ran."""
    note("late", number, os.getppid())


@app.task  # type: ignore[untyped-decorator]  # celery has no types
def early(number: int) -> int:
    """Acknowledged before it runs."""
    note("early", number, os.getppid())
    return number
