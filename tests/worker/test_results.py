"""Results for a caller that waits: values, errors, and what cannot be sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

import fifo
import fifo.testing
from tests.worker.conftest import running

pytestmark = pytest.mark.slow


@dataclass
class Parcel:
    number: int
    weight: float


async def test_a_caller_gets_what_the_handler_returned(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url, format="msgpack")

    @app.task("parcels")
    async def pack(number: int, weight: float = 1.5) -> Parcel:
        return Parcel(number, weight)

    async with running(app, cluster):
        assert await pack.call(7) == Parcel(7, 1.5)
        assert await pack.call(number=8, weight=2) == Parcel(8, 2.0)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_a_caller_hears_how_a_task_failed_and_not_of_its_retries(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)
    attempts = 0

    @app.task("parcels", max_deliveries=3, retry=fifo.Fixed(1))
    async def pack(attempts_needed: int) -> int:
        nonlocal attempts
        attempts += 1
        if attempts < attempts_needed:
            raise ValueError("no box")
        return attempts

    async with running(app, cluster):
        assert await pack.call(2) == 2
        attempts = 0
        text = "max_deliveries: failed 3 of 3 times: ValueError: no box"
        with pytest.raises(fifo.TaskError, match=text):
            await pack.call(9)


async def test_a_result_that_cannot_be_sent_is_an_error_and_the_task_is_done(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)

    @app.task("parcels")
    async def pack(size: int) -> object:
        return "x" * size if size else object()

    async with running(app, cluster):
        with pytest.raises(fifo.TaskError, match="its result cannot be sent: body: 2000013 bytes"):
            await pack.call(2_000_000)
        with pytest.raises(fifo.TaskError, match="its result cannot be sent: result: object"):
            await pack.call(0)
        await cluster.advance()
        assert cluster.queue("parcels").view.messages == 0
    assert caplog.text.count("a result cannot be sent, and its task is done all the same") == 2


async def test_a_caller_waits_no_longer_than_its_time_and_its_queue_goes(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)

    @app.task("parcels")
    async def pack() -> None: ...

    async with app:
        await pack.send()  # declares the queue
        with pytest.raises(fifo.Timeout, match="no result within 5 s") as late:
            await pack.call(timeout=5)
        assert late.value.unknown
    async with running(app, cluster) as worker:
        await cluster.advance(minutes=3)
        names = [view.name for view in await worker.client.queues()]
    assert sorted(names) == ["parcels", "parcels.dead"]


async def test_a_caller_whose_queue_went_while_it_was_cut_off_has_another(
    cluster: fifo.testing.Cluster,
) -> None:
    def shop() -> tuple[fifo.App, Callable[..., Awaitable[int]]]:
        app = fifo.App(cluster.url)

        @app.task("parcels")
        async def pack() -> int:
            return 7

        return app, pack.call

    (at_work, _), (calling, call) = shop(), shop()
    async with running(at_work, cluster), calling:
        assert await call() == 7
        cluster.cut(calling.client)
        await cluster.advance(minutes=15)
        cluster.heal()
        await cluster.advance(seconds=30)
        assert await call(timeout=20) == 7
