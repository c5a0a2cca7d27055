"""Blocking work beside the loop: order, threads, errors, the end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from node.journal.io.worker import Inline, Worker, WorkerThread


async def outcomes(offload: Worker, *works: object) -> list[BaseException | None]:
    """What `done` was told for each work, in order."""
    told: list[BaseException | None] = []
    ended = asyncio.Event()

    def done(error: BaseException | None) -> None:
        told.append(error)
        if len(told) == len(works):
            ended.set()

    for work in works:
        assert callable(work)
        offload.run(work, done)
    await asyncio.wait_for(ended.wait(), 10)
    return told


def failing() -> None:
    raise OSError(5, "broken")


@pytest.mark.parametrize("kind", ["inline", "thread"])
async def test_tells_the_end_or_the_error_in_the_order_of_asking(kind: str) -> None:
    offload: Worker = Inline() if kind == "inline" else WorkerThread("test")
    order: list[int] = []
    told = await outcomes(offload, lambda: order.append(1), failing, lambda: order.append(2))
    offload.close()
    assert order == [1, 2]
    assert told[0] is None
    assert isinstance(told[1], OSError)
    assert told[2] is None


async def test_a_thread_works_beside_the_loop_and_tells_on_it() -> None:
    offload = WorkerThread("test")
    here = threading.get_ident()
    seen: list[int] = []
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    release = threading.Event()

    def work() -> None:
        seen.append(threading.get_ident())
        assert release.wait(10)

    offload.run(work, lambda _: told.set_result(threading.get_ident()))
    await asyncio.sleep(0)
    assert not told.done()  # The loop goes on while the work blocks.
    release.set()
    assert await asyncio.wait_for(told, 10) == here
    assert seen != [here]
    offload.close()


async def test_after_close_nothing_runs_and_nothing_is_told() -> None:
    offload = WorkerThread("test")
    begun, release = threading.Event(), threading.Event()
    told: list[BaseException | None] = []
    ran: list[int] = []

    def work() -> None:
        begun.set()
        assert release.wait(10)

    offload.run(work, told.append)
    offload.run(lambda: ran.append(1), told.append)
    assert await asyncio.to_thread(begun.wait, 10)
    threading.Timer(0.05, release.set).start()
    offload.close()
    await asyncio.sleep(0)
    assert told == []
    assert ran == []
    with pytest.raises(RuntimeError):
        offload.run(lambda: None, told.append)
