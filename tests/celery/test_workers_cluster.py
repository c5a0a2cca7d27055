"""Workers of Celery as processes, on real nodes: pools, remote control, and a drill with kills."""

from __future__ import annotations

import asyncio
import queue
import threading
from pathlib import Path
from typing import Any

import pytest
from kombu import pools

import fifo
from tests.celery import workers
from tests.celery.app import EARLY, LATE, made
from tests.celery.workers import Worker
from tests.support.cluster import eventually
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.process, pytest.mark.timeout(240)]

SECONDS = 60.0
"""Longest wait for tasks: many times what they take on a busy machine."""


@pytest.fixture
def app(shared_cluster: SharedCluster) -> Any:
    """An app that sends tasks to the workers."""
    with made(shared_cluster.url) as found:
        yield found
        pools.reset()
    for thread in threading.enumerate():
        if thread.name == "fifo celery":
            thread.join(SECONDS)
            assert not thread.is_alive(), "a connection was not closed"


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
async def test_a_worker_of_each_pool_runs_tasks_and_answers(
    shared_cluster: SharedCluster, tmp_path: Path, app: Any, pool: str
) -> None:
    arguments = ("-P", pool, "-c", "2", "-Q", "late,early")
    with Worker(shared_cluster.url, tmp_path, "w", *arguments) as worker:
        await worker.ready()

        def use() -> None:
            found = [app.send_task(EARLY, [number]) for number in range(10)]
            assert [one.get(timeout=SECONDS) for one in found] == list(range(10))
            due = app.send_task(EARLY, [10], countdown=0.5)
            assert due.get(timeout=SECONDS) == 10
            assert app.control.ping(timeout=SECONDS, limit=1) == [{"w@drill": {"ok": "pong"}}]
            (active,) = app.control.inspect(timeout=SECONDS, limit=1).active_queues().values()
            assert {one["name"] for one in active} == {"late", "early"}
            if pool == "threads":
                _is_seen(app)
            app.backend.result_consumer.stop()  # a thread's own

        await asyncio.to_thread(use)
        assert "Traceback" not in await asyncio.to_thread(worker.stop)


def _is_seen(app: Any) -> None:
    """A worker as Flower and operators see it: its figures, and events of each task."""
    inspect = app.control.inspect(timeout=SECONDS, limit=1)
    (stats,) = inspect.stats().values()
    assert stats["total"][EARLY] == 11
    assert inspect.active() == {"w@drill": []}
    with app.connection_for_read() as connection:
        events: queue.Queue[dict[str, Any]] = queue.Queue()
        receiver = app.events.Receiver(connection, handlers={"*": events.put})
        capturing = threading.Thread(target=receiver.capture, kwargs={"wakeup": True})
        capturing.start()
        while events.get(timeout=SECONDS)["type"] != "worker-heartbeat":
            pass  # those of tasks before
        sent = app.send_task(EARLY, [11])
        seen = [""]
        while seen[-1] != "task-succeeded":
            event = events.get(timeout=SECONDS)
            if event.get("uuid") == sent.id:
                seen.append(event["type"])
        assert seen[1:] == ["task-received", "task-started", "task-succeeded"]
        receiver.should_stop = True
        capturing.join(SECONDS)


async def test_a_task_that_older_code_does_not_know_waits_for_newer_code(
    shared_cluster: SharedCluster, tmp_path: Path, app: Any
) -> None:
    arguments = ("-P", "solo", "-Q", "late")
    async with fifo.connect(shared_cluster.url) as client:
        with Worker(shared_cluster.url, tmp_path, "old", *arguments, app="older") as older:
            await older.ready()
            await asyncio.to_thread(app.send_task, LATE, [1], ignore_result=True)
            line = f"Received unregistered task of type {LATE!r}"
            await eventually(lambda: line in older.output.read_text(), within=SECONDS)
            await asyncio.to_thread(older.stop)
        (letter,) = await client.get("late.dead", wait=SECONDS)
        assert letter.dead_letter is not None
        assert letter.dead_letter.detail == "rejected"
        await letter.release()
        await client.redrive("late.dead", headers={"task": LATE})
        with Worker(shared_cluster.url, tmp_path, "new", *arguments) as newer:
            await newer.ready()
            await _ran(tmp_path, 1)
            await asyncio.to_thread(newer.stop)


TASKS = 2_000
EARLY_TASKS = 400
THREADS = 4
KILL_AT = (300, 1_200)
"""Runs after which the leader is killed."""

WORKER_DIES_AT = 700
HELD_AT_MOST = 2 * 4
"""Tasks that a worker of two processes holds: Celery's prefetch multiplier is 4."""


async def test_two_thousand_tasks_survive_two_leaders_and_a_worker(
    shared_cluster: SharedCluster, tmp_path: Path, app: Any
) -> None:
    url = shared_cluster.url
    arguments = ("-P", "prefork", "-c", "2", "-Q")
    with (
        Worker(url, tmp_path, "a", *arguments, "late") as mortal,
        Worker(url, tmp_path, "b", *arguments, "late,early") as worker,
    ):
        await mortal.ready()
        await worker.ready()
        sending = [_sending(app, part) for part in range(THREADS)]
        for count in sorted([*KILL_AT, WORKER_DIES_AT]):
            await _ran(tmp_path, count)
            if count == WORKER_DIES_AT:
                await asyncio.to_thread(mortal.kill)
            else:
                name = (await shared_cluster.leader()).me.name
                await shared_cluster.crash(name)
                await shared_cluster.start(name)
        for thread in sending:
            await asyncio.to_thread(thread.join)
        await _ran(tmp_path, TASKS)
        await asyncio.to_thread(worker.stop)
    found = workers.runs(tmp_path)
    wanted = {("early" if number < EARLY_TASKS else "late", number) for number in range(TASKS)}
    assert set(found) == wanted
    again = [task for task, times in found.items() if times > 1]
    assert [task for task in again if task[0] == "early"] == []
    assert len(again) <= HELD_AT_MOST, again


def _sending(app: Any, part: int) -> threading.Thread:
    """A thread that sends its part of the tasks, a fifth of them for later."""

    def send() -> None:
        for number in range(part, TASKS, THREADS):
            name = EARLY if number < EARLY_TASKS else LATE
            countdown = 0.5 + number % 3 if number % 5 == 0 else None
            app.send_task(name, [number], countdown=countdown, ignore_result=True)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


async def _ran(folder: Path, count: int) -> None:
    """Wait until so many tasks ran."""
    await eventually(lambda: len(workers.runs(folder)) >= count, within=SECONDS)
