"""The clock of `tests.support.skipping`: it jumps while nothing happens, and only then."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.skipping import SkippingLoop

HOUR = 3600.0
WORK_SECONDS = 0.05


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=SkippingLoop) as made:
        yield made


def test_timers_come_in_their_order_and_at_once(runner: asyncio.Runner) -> None:
    async def wake(after: float, woken: list[float]) -> None:
        await asyncio.sleep(after)
        woken.append(after)

    async def main() -> float:
        woken: list[float] = []
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(wake(after, woken) for after in (10.0, 1.0, 5.0)))
        assert woken == [1.0, 5.0, 10.0]
        return asyncio.get_running_loop().time() - began

    began = time.monotonic()
    assert runner.run(main()) >= 10.0
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("where", ["executor", "worker"])
def test_no_time_is_skipped_while_a_thread_works(runner: asyncio.Runner, where: str) -> None:
    def work() -> None:
        threading.Event().wait(WORK_SECONDS)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        worker = loop.environment().worker("test")
        done = loop.create_future()
        began = loop.time()
        async with asyncio.timeout(HOUR):
            if where == "executor":
                await asyncio.to_thread(work)
            else:
                worker.run(work, done.set_result)
                await done
        took = loop.time() - began
        worker.run(work, lambda _: None)
        worker.close()
        await asyncio.sleep(1.0)
        return took

    assert WORK_SECONDS <= runner.run(main()) < HOUR / 60


def test_what_is_sent_arrives_before_any_deadline(runner: asyncio.Runner) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(9))
        writer.close()

    async def main() -> bytes:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server, asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello")
            answer = await reader.read()
            writer.close()
            return answer

    for _ in range(50):
        assert runner.run(main()) == b"hello"
