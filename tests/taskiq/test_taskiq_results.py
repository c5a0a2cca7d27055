"""taskiq's results by reply queue, and a broker of several queues, on a cluster in the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from taskiq import InMemoryBroker, SmartRetryMiddleware
from taskiq.exceptions import ResultGetError
from taskiq.receiver import Receiver

import fifo
import fifo.testing
from fifo.taskiq import FifoBroker, FifoResultBackend, limits

pytestmark = pytest.mark.slow


@pytest.fixture
async def cluster() -> AsyncIterator[fifo.testing.Cluster]:
    async with fifo.testing.cluster() as made:
        yield made


@asynccontextmanager
async def started(url: str, **options: Any) -> AsyncIterator[FifoBroker]:
    """A process of the shop: those that work and those that send have the same tasks."""
    broker = FifoBroker(url, **options).with_result_backend(FifoResultBackend())
    broker.add_middlewares(SmartRetryMiddleware(default_delay=60))

    @broker.task("half")
    async def half(number: int) -> float:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number / 2

    @broker.task("many")
    async def many(count: int) -> Any:
        return "x" * count if count else object()

    @broker.task("nested")
    async def nested(number: int) -> float:
        asked = await half.kiq(number)
        return float((await asked.wait_result()).return_value)

    attempts: list[int] = []

    @broker.task("patient", retry_on_error=True, max_retries=3)
    async def patient() -> int:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return len(attempts)

    await broker.startup()
    try:
        yield broker
    finally:
        await broker.shutdown()


@asynccontextmanager
async def working(url: str, **options: Any) -> AsyncIterator[FifoBroker]:
    """Such a process with a receiver of taskiq's, as in its workers."""
    async with started(url, **options) as broker:
        finish = asyncio.Event()
        receiver = Receiver(broker, max_async_tasks=10, run_startup=False)
        listening = asyncio.create_task(receiver.listen(finish))
        try:
            yield broker
        finally:
            finish.set()
            await listening


async def ask(broker: FifoBroker, name: str, *args: Any) -> Any:
    """The result of a task, once it has come."""
    task = broker.find_task(name)
    assert task is not None
    return await (await task.kiq(*args)).wait_result()


async def test_the_process_that_sent_a_task_gets_its_result(cluster: fifo.testing.Cluster) -> None:
    async with working(cluster.url), started(cluster.url) as asking:
        answers = await asyncio.gather(*(ask(asking, "half", number) for number in range(0, 20, 2)))
        assert [answer.return_value for answer in answers] == list(range(10))
        failed = await ask(asking, "half", 7)
        assert failed.is_err
        with pytest.raises(ValueError, match="7 is odd"):
            failed.raise_for_error()
        assert (await ask(asking, "nested", 8)).return_value == 4


async def test_a_task_that_is_tried_again_answers_the_process_that_sent_it(
    cluster: fifo.testing.Cluster,
) -> None:
    async with working(cluster.url), started(cluster.url) as asking:
        assert (await ask(asking, "patient")).return_value == 3


async def test_a_result_is_read_as_often_as_it_is_asked_for_and_goes_after_a_while(
    cluster: fifo.testing.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(cluster.url), started(cluster.url) as asking:
        half = asking.find_task("half")
        assert half is not None
        first, second = await half.kiq(2), await half.kiq(4)
        for _ in range(2):
            assert (await first.wait_result()).return_value == 1
        assert (await second.wait_result()).return_value == 2
        await cluster.advance(limits.RESULT_S)
        with pytest.raises(ResultGetError) as gone:
            await first.get_result()
        assert "there is no result of task" in str(gone.value.__cause__)
        monkeypatch.setattr(limits, "RESULTS_MAX", 1)
        assert (await ask(asking, "half", 6)).return_value == 3
        assert (await ask(asking, "half", 8)).return_value == 4
        backend: Any = asking.result_backend
        assert len(backend._results) == 1


async def test_a_result_that_fits_into_no_message_is_an_error_and_the_task_is_done(
    cluster: fifo.testing.Cluster,
) -> None:
    async with working(cluster.url), started(cluster.url) as asking:
        for count in (2_000_000, 0):
            answer = await ask(asking, "many", count)
            with pytest.raises(Exception, match="the task is done, and its result cannot be sent"):
                answer.raise_for_error()
        await cluster.advance()
        assert cluster.queue(limits.QUEUE).view.messages == 0


async def test_a_result_of_a_process_that_has_gone_is_dropped(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(cluster.url) as gone:
        half = gone.find_task("half")
        assert half is not None
        await half.kiq(2)
    await cluster.advance(minutes=5)
    async with working(cluster.url):
        await cluster.advance(seconds=5)
    assert cluster.queue(limits.QUEUE).view.messages == 0
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_a_worker_of_several_queues_runs_what_comes_from_each(
    cluster: fifo.testing.Cluster,
) -> None:
    options: dict[str, Any] = {"queues": {"mails": {"lock": 90}, "reports": {}}}
    async with working(cluster.url, **options), started(cluster.url, **options) as asking:
        half = asking.find_task("half")
        assert half is not None
        for name in (limits.QUEUE, "mails", "reports"):
            asked = await half.kicker().with_labels(queue_name=name).kiq(2)
            assert (await asked.wait_result()).return_value == 1
        assert cluster.queue("mails").view.spec["lock_ms"] == 90_000
        assert cluster.queue("reports").view.spec.get("lock_ms") != 90_000


async def test_a_full_queue_holds_up_no_other_and_what_was_not_begun_goes_back(
    cluster: fifo.testing.Cluster,
) -> None:
    broker = FifoBroker(cluster.url, queues={"mails": {}})
    begun: list[str] = []
    go_on = asyncio.Event()

    @broker.task("note")
    async def note(name: str) -> None:
        begun.append(name)
        await go_on.wait()

    await broker.startup()
    for name in (limits.QUEUE, "mails"):
        for _ in range(50):
            await note.kicker().with_labels(queue_name=name).kiq(name)
    finish = asyncio.Event()
    receiver = Receiver(broker, max_async_tasks=4, run_startup=False)
    listening = asyncio.create_task(receiver.listen(finish))
    await cluster.advance(seconds=1)
    assert set(begun) == {limits.QUEUE, "mails"}
    finish.set()
    go_on.set()
    await listening
    await broker.shutdown()
    await cluster.advance()
    found = [cluster.queue(name) for name in (limits.QUEUE, "mails")]
    assert sum(one.view.ready for one in found) == 100 - len(begun)
    assert {message.failures for one in found for message in one.messages} == {0}


async def test_the_backend_is_refused_at_the_start_of_another_broker() -> None:
    broker = InMemoryBroker().with_result_backend(FifoResultBackend())
    with pytest.raises(fifo.InvalidArgument, match=r"belongs to a fifo\.taskiq\.FifoBroker"):
        await broker.startup()
