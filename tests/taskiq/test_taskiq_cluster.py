"""taskiq's tasks on real nodes: sent, delayed, received, and what is not acknowledged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from taskiq import Context, SmartRetryMiddleware, TaskiqDepends
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

import fifo
from fifo.taskiq import FifoBroker, limits
from fifo.taskiq.labels import publication
from tests.support.cluster import LOOK_SECONDS, eventually, passed
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster]

SECONDS = 20.0
"""Longest wait for a task: far above an election on a busy machine."""


@pytest.fixture
async def broker(shared_cluster: SharedCluster) -> AsyncIterator[FifoBroker]:
    """A broker that is started."""
    found = FifoBroker(shared_cluster.url, queue_options={"lock": 2, "nack_backoff": "fixed:50ms"})
    await found.startup()
    yield found
    await found.shutdown()


@asynccontextmanager
async def working(broker: FifoBroker) -> AsyncIterator[None]:
    """A receiver of taskiq's, as in its workers."""
    finish = asyncio.Event()
    receiver = Receiver(broker, max_async_tasks=10, run_startup=False)
    listening = asyncio.create_task(receiver.listen(finish))
    try:
        yield
    finally:
        finish.set()
        await asyncio.wait_for(listening, SECONDS)


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is true."""
    async with asyncio.timeout(SECONDS):
        while not await look():
            await passed(LOOK_SECONDS)


async def empty(client: fifo.Client) -> None:
    """Wait until nothing is left of the queue."""

    async def look() -> bool:
        return (await client.queue(limits.QUEUE)).messages == 0

    await until(look)


async def test_tasks_run_and_are_acknowledged(broker: FifoBroker) -> None:
    ran: list[int] = []

    @broker.task("note")
    async def note(number: int) -> None:
        ran.append(number)

    async with working(broker):
        for number in range(20):
            await note.kiq(number)
        await empty(broker.client)
    assert sorted(ran) == list(range(20))


async def test_labels_say_when_where_and_how(broker: FifoBroker) -> None:
    @broker.task("note", priority=9, delay=60, key="customer-7")
    async def note() -> None: ...

    sent = await note.kicker().with_labels(queue_name="slow").kiq()
    (waiting,) = await broker.client.delayed("slow")
    assert waiting.cause == "published"
    (message,) = (await broker.client.find("slow")).messages
    assert (message.priority, message.key) == (9, "customer-7")
    assert message.headers == {"task": "note", "id": sent.task_id}


@pytest.mark.parametrize("value", ["soon", [1], "nan", float("inf"), 10**400])
def test_a_label_that_is_no_number_is_refused(value: object) -> None:
    for name in ("delay", "priority", "ttl"):
        text = re.escape(f"label {name}: must be a number, not {value!r:.80}")
        with pytest.raises(fifo.InvalidArgument, match=text):
            publication({name: value}, "q")


def test_wrong_options_are_refused_at_once() -> None:
    url = "fifo://127.0.0.1:1"
    for options, text in WRONG:
        with pytest.raises(fifo.InvalidArgument, match=f"^{text}"):
            FifoBroker(url, **options)
    with pytest.raises(fifo.InvalidArgument, match=r"^url: must begin with fifo://"):
        FifoBroker("redis://127.0.0.1:1")
    with pytest.raises(fifo.InvalidArgument, match=r"^queue name: must be text, not int"):
        FifoBroker(url, 5)  # type: ignore[arg-type]  # wrong on purpose


WRONG: Final[tuple[tuple[Any, str], ...]] = (
    ({"queue_options": {"lock": "soon"}}, "queue_options: lock: must be seconds"),
    ({"queues": {"mails": 5}}, "queues: mails: must be a mapping"),
    ({"consumer": {"pull": True}}, "consumer: pull: a worker has messages sent to it"),
    ({"tmeout": 5}, "tmeout: a connection has no such option; did you mean timeout"),
)


async def test_a_retry_of_taskiqs_waits_in_the_cluster(broker: FifoBroker) -> None:
    broker.add_middlewares(SmartRetryMiddleware(default_delay=0.05))
    ran: list[int] = []

    @broker.task("fails", retry_on_error=True, max_retries=3)
    async def fails() -> None:
        ran.append(1)
        raise ValueError("no")

    async with working(broker):
        await fails.kiq()
        await eventually(lambda: len(ran) == 3, within=SECONDS)
        await empty(broker.client)


async def test_a_task_that_acknowledges_itself_keeps_its_message_until_it_does(
    broker: FifoBroker,
) -> None:
    ran: list[int] = []

    @broker.task("careful", ack_type="manual")
    async def careful(context: Context = TaskiqDepends()) -> None:  # noqa: B008 - taskiq's way
        ran.append(1)
        if len(ran) == 2:
            await context.ack()

    async with working(broker):
        await careful.kiq()
        await eventually(lambda: len(ran) == 1, within=SECONDS)
    await broker.shutdown()
    await broker.startup()
    async with working(broker):
        await eventually(lambda: len(ran) == 2, within=SECONDS)
        await empty(broker.client)


UNREADABLE = (
    b"{",
    b"[1]",
    b'{"task_id": "1", "task_name": 5, "labels": {}, "args": [], "kwargs": {}}',
    b'{"task_id": "1", "task_name": "known", "labels": {"a": 1}, "labels_types": {"a": 99},'
    b' "args": [], "kwargs": {}}',
)
"""Bodies of which taskiq makes no task: it acknowledges each, with a line in its log."""


async def test_what_taskiq_would_acknowledge_unread_is_kept(
    broker: FifoBroker, shared_cluster: SharedCluster
) -> None:
    newer = FifoBroker(shared_cluster.url)
    await newer.startup()

    @broker.task("known")
    async def known() -> None: ...

    @newer.task("newer")
    async def task_of_newer_code() -> None: ...

    try:
        async with working(broker):
            await task_of_newer_code.kiq()
            for body in UNREADABLE:
                await broker.client.publish(limits.QUEUE, body)

            async def kept() -> bool:
                view = await broker.client.queue(limits.QUEUE)
                dead = await broker.client.queue(f"{limits.QUEUE}.dead")
                return view.delayed == 1 and dead.ready == len(UNREADABLE)

            await until(kept)
        letters = await broker.client.get(f"{limits.QUEUE}.dead", len(UNREADABLE))
        assert {bytes(one.body) for one in letters} == set(UNREADABLE)
        for letter in letters:
            assert letter.dead_letter is not None
            assert letter.dead_letter.detail == "cannot be decoded"
    finally:
        await newer.shutdown()


async def test_a_queue_that_was_deleted_is_declared_anew(broker: FifoBroker) -> None:
    @broker.task("note")
    async def note() -> None: ...

    await broker.client.delete(limits.QUEUE)
    await note.kiq()
    assert (await broker.client.queue(limits.QUEUE)).ready == 1


async def test_a_broker_that_is_not_started_says_so() -> None:
    broker = FifoBroker("fifo://127.0.0.1:1")

    @broker.task("note")
    async def note() -> None: ...

    with pytest.raises(SendTaskError) as failed:
        await note.kiq()
    assert "await broker.startup() first" in str(failed.value.__cause__)
