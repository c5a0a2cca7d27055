"""Blocking work off the event loop: order, threads, errors, the end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from node.journal.io.jobs import Inline, Worker, WorkerThread


async def outcomes(worker: Worker, *works: object) -> list[BaseException | None]:
    """The argument of `done` for each work, in order."""
    reported: list[BaseException | None] = []
    ended = asyncio.Event()

    def done(error: BaseException | None) -> None:
        reported.append(error)
        if len(reported) == len(works):
            ended.set()

    for work in works:
        assert callable(work)
        worker.run(work, done)
    await asyncio.wait_for(ended.wait(), 10)
    return reported


def failing() -> None:
    raise OSError(5, "broken")


@pytest.mark.parametrize("kind", ["inline", "thread"])
async def test_completions_and_errors_are_reported_in_the_order_of_submission(kind: str) -> None:
    worker: Worker = Inline() if kind == "inline" else WorkerThread("test")
    order: list[int] = []
    reported = await outcomes(worker, lambda: order.append(1), failing, lambda: order.append(2))
    worker.close()
    assert order == [1, 2]
    assert reported[0] is None
    assert isinstance(reported[1], OSError)
    assert reported[2] is None


async def test_a_thread_works_off_the_event_loop_and_reports_on_it() -> None:
    worker = WorkerThread("test")
    here = threading.get_ident()
    seen: list[int] = []
    reported: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    release = threading.Event()

    def work() -> None:
        seen.append(threading.get_ident())
        assert release.wait(10)

    worker.run(work, lambda _: reported.set_result(threading.get_ident()))
    await asyncio.sleep(0)
    assert not reported.done()  # The loop goes on while the work blocks.
    release.set()
    assert await asyncio.wait_for(reported, 10) == here
    assert seen != [here]
    worker.close()


async def test_after_close_nothing_runs_and_nothing_is_reported() -> None:
    worker = WorkerThread("test")
    begun, release = threading.Event(), threading.Event()
    reported: list[BaseException | None] = []
    ran: list[int] = []

    def work() -> None:
        begun.set()
        assert release.wait(10)

    worker.run(work, reported.append)
    worker.run(lambda: ran.append(1), reported.append)
    assert await asyncio.to_thread(begun.wait, 10)
    threading.Timer(0.05, release.set).start()
    worker.close()
    await asyncio.sleep(0)
    assert reported == []
    assert ran == []
    with pytest.raises(RuntimeError):
        worker.run(lambda: None, reported.append)
