"""dramatiq's actors and workers on real nodes: sent, delayed, retried, rejected, given back."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

import dramatiq
import pytest
from dramatiq.errors import ConnectionClosed

import fifo
from fifo.blocking import BlockingClient
from fifo.dramatiq import FifoBroker
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster]

SECONDS = 20.0
"""Longest wait for an actor: far above an election on a busy machine."""

MILLISECONDS = int(SECONDS * 1000)


@pytest.fixture
def broker(shared_cluster: SharedCluster) -> Iterator[FifoBroker]:
    """A broker of dramatiq's."""
    found = FifoBroker(shared_cluster.url, queue={"lock": 2})
    yield found
    found.close()


@pytest.fixture
def worker(broker: FifoBroker) -> Iterator[dramatiq.Worker]:
    """A worker that is stopped in the end."""
    found = dramatiq.Worker(broker, worker_timeout=100, worker_threads=2)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def other(shared_cluster: SharedCluster) -> Iterator[BlockingClient]:
    """A client beside dramatiq's."""
    with fifo.blocking.connect(shared_cluster.url) as found:
        yield found


def test_actors_run_once_in_order(broker: FifoBroker, worker: dramatiq.Worker) -> None:
    ran: list[int] = []

    @dramatiq.actor(broker=broker)
    def note(number: int) -> None:
        ran.append(number)

    for number in range(20):
        note.send(number)
    broker.join("default", timeout=MILLISECONDS)
    assert sorted(ran) == list(range(20))
    assert broker.get_queue_message_counts("default") == (0, 0, 0)


def test_a_delay_waits_in_the_cluster(broker: FifoBroker, other: BlockingClient) -> None:
    @dramatiq.actor(broker=broker)
    def later() -> None: ...

    message = later.send_with_options(delay=60_000)
    (waiting,) = other.delayed("default")
    assert waiting.cause == "published"
    assert broker.get_queue_message_counts("default") == (0, 1, 0)
    (found,) = other.find("default").messages
    assert found.headers == {"task": "later", "id": message.message_id}


def test_a_planned_retry_comes_again_and_the_last_failure_is_dead_with_its_stack(
    broker: FifoBroker, worker: dramatiq.Worker, other: BlockingClient
) -> None:
    ran: list[int] = []

    @dramatiq.actor(broker=broker, max_retries=1, min_backoff=10, max_backoff=20)
    def fails() -> None:
        ran.append(1)
        raise ValueError("no such order")

    fails.send()
    broker.join("default", timeout=MILLISECONDS)
    assert len(ran) == 2
    (letter,) = other.get("default.XQ")
    assert letter.dead_letter is not None
    assert letter.dead_letter.detail == "rejected"
    assert letter.dead_letter.exception == "ValueError: no such order"
    assert "raise ValueError" in str(letter.dead_letter.stack)


def test_an_actor_that_a_worker_does_not_know_and_a_body_that_is_none_are_dead_letters(
    broker: FifoBroker, worker: dramatiq.Worker, other: BlockingClient
) -> None:
    broker.declare_queue("default")
    broker.enqueue(dramatiq.Message("default", "newer", (), {}, {}))
    for body in UNREADABLE:
        other.publish("default", body)
    broker.join("default", timeout=MILLISECONDS)
    letters = other.get("default.XQ", 1 + len(UNREADABLE))
    found = {bytes(one.body): one.dead_letter for one in letters if one.dead_letter}
    assert {found.pop(body).detail for body in UNREADABLE} == {"cannot be decoded"}
    (letter,) = found.values()
    assert (letter.detail, letter.exception) == ("rejected", "ActorNotFound: newer")


def test_a_message_that_was_moved_runs_where_it_is_found(
    broker: FifoBroker, other: BlockingClient
) -> None:
    """The message names a queue that this worker does not consume."""
    ran: list[int] = []

    @dramatiq.actor(broker=broker, queue_name="moved")
    def note(number: int) -> None:
        ran.append(number)

    other.declare(fifo.QueueSpec("moved"))
    for number in range(4):
        other.publish("moved", dramatiq.Message("old", "note", (number,), {}, {}).encode())
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    broker.join("moved", timeout=MILLISECONDS)
    worker.stop()
    assert sorted(ran) == list(range(4))


UNREADABLE = (
    b"\xff",
    b"[1]",
    b"{}",
    b'{"queue_name": "default", "actor_name": 5, "args": [], "kwargs": {}, "options": {}}',
    b'{"queue_name": "default", "actor_name": "a", "args": [], "kwargs": 5, "options": {}}',
    b'{"queue_name": "default", "actor_name": "a", "args": [], "kwargs": {}, "options": null}',
)
"""Bodies that are no message of dramatiq's, though it takes the last three for some."""


def test_what_a_worker_has_not_begun_goes_back_when_it_stops(
    broker: FifoBroker, other: BlockingClient
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @dramatiq.actor(broker=broker)
    def slow() -> None:
        begun.set()
        go_on.wait(SECONDS)

    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    slow.send()
    slow.send()
    assert begun.wait(SECONDS)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    go_on.set()
    stopping.join(SECONDS)
    broker.close()
    view = other.queue("default")
    assert (view.locked, view.delayed) == (0, 0)
    assert [message.failures for message in other.get("default", 2)] == [0] * view.ready


def test_a_queue_that_was_deleted_is_declared_anew(
    broker: FifoBroker, worker: dramatiq.Worker, other: BlockingClient
) -> None:
    ran = threading.Event()

    @dramatiq.actor(broker=broker)
    def note() -> None:
        ran.set()

    note.send()
    broker.join("default", timeout=MILLISECONDS)
    other.delete("default")
    ran.clear()
    note.send()
    assert ran.wait(SECONDS)


async def test_a_lost_leader_is_not_seen(
    shared_cluster: SharedCluster, broker: FifoBroker, worker: dramatiq.Worker
) -> None:
    ran: list[int] = []

    @dramatiq.actor(broker=broker)
    def note(number: int) -> None:
        ran.append(number)

    def send(first: int) -> None:
        for number in range(first, first + 50):
            note.send(number)

    await asyncio.to_thread(send, 0)
    leader = await shared_cluster.leader()
    await shared_cluster.crash(leader.me.name)
    await asyncio.to_thread(send, 50)
    await asyncio.to_thread(broker.join, "default", timeout=MILLISECONDS)
    assert sorted(ran) == list(range(100))


def test_no_cluster_is_an_error_that_dramatiq_knows() -> None:
    broker = FifoBroker("fifo://127.0.0.1:1", connect_timeout=0.1)

    @dramatiq.actor(broker=broker)
    def note() -> None: ...

    with pytest.raises(ConnectionClosed):
        note.send()


def test_wrong_options_are_refused_at_once() -> None:
    for options, text in WRONG:
        with pytest.raises(fifo.InvalidArgument, match=f"^{text}"):
            FifoBroker("fifo://127.0.0.1:1", **options)
    with pytest.raises(fifo.InvalidArgument, match=r"^url: must begin with fifo://"):
        FifoBroker("amqp://127.0.0.1")


WRONG: Final[tuple[tuple[Any, str], ...]] = (
    ({"queue": {"lock": "soon"}}, "queue: lock: must be seconds"),
    ({"queues": {"mails": {"tll": 5}}}, "queues: mails: tll: a queue has no such option; did"),
    ({"consumer": {"prefetch": 5}}, "consumer: prefetch: dramatiq chooses it, by the environ"),
    ({"tmeout": 5}, "tmeout: a connection has no such option; did you mean timeout"),
)


@pytest.mark.parametrize("priority", ["high", 1.5])
def test_a_priority_that_is_none_is_refused_where_it_is_sent(
    broker: FifoBroker, priority: object
) -> None:
    message = dramatiq.Message("default", "note", (), {}, {"broker_priority": priority})
    text = re.escape(f"broker_priority: must be a whole number, not {priority!r}")
    with pytest.raises(fifo.InvalidArgument, match=text):
        broker.enqueue(message)
