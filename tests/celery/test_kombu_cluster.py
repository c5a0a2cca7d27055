"""kombu's entities on real nodes: declare, bind, publish, consume, settle, and a lost leader."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqp.exceptions import ConsumerCancelled, NotFound, PreconditionFailed
from kombu import Connection, Consumer, Exchange, Message, Producer, Queue
from kombu.asynchronous import Hub

import fifo
from fifo.blocking import BlockingClient, connect
from fifo.celery import registration
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster]

SECONDS = 20.0
"""Longest wait for a message: far above an election on a busy machine."""


@pytest.fixture
def kombu(shared_cluster: SharedCluster) -> Iterator[Connection]:
    """A connection of kombu's, closed in the end."""
    assert registration.JSON, "the scheme is known"
    with Connection(shared_cluster.url) as found:
        yield found


@pytest.fixture
def cluster_client(shared_cluster: SharedCluster) -> Iterator[BlockingClient]:
    """A client beside kombu's."""
    with connect(shared_cluster.url) as found:
        yield found


class Receiver:
    """Consumes, and keeps what came."""

    def __init__(self, connection: Connection, *queues: Queue, prefetch: int = 0) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.channel.basic_qos(0, prefetch, False)
        self.messages: list[Message] = []
        self.consumer = Consumer(
            self.channel,
            list(queues),
            on_message=self.messages.append,
            accept=["json", "text/plain"],
        )
        self.consumer.consume()

    def wait_for(self, count: int) -> list[Any]:
        """The bodies of the first messages, once there are so many."""
        while len(self.messages) < count:
            self.connection.drain_events(timeout=SECONDS)
        return [message.payload for message in self.messages]

    def is_silent(self) -> bool:
        """Whether nothing comes in a moment."""
        count = len(self.messages)
        with contextlib.suppress(socket.timeout):
            self.connection.drain_events(timeout=0.2)
        return len(self.messages) == count


def publish(connection: Connection, bodies: list[Any], queue: Queue, **options: Any) -> None:
    with connection.channel() as channel:
        producer = Producer(channel)
        for body in bodies:
            producer.publish(
                body,
                exchange=queue.exchange,
                routing_key=queue.routing_key or queue.name,
                declare=[queue],
                **options,
            )


def test_messages_come_in_order_with_what_they_had(kombu: Connection) -> None:
    queue = Queue("orders")
    publish(kombu, [1, 2, 3], queue, headers={"n": None, "l": [1]}, correlation_id="c")
    receiver = Receiver(kombu, queue)
    assert receiver.wait_for(3) == [1, 2, 3]
    first = receiver.messages[0]
    assert first.headers == {"n": None, "l": [1]}
    assert first.properties["correlation_id"] == "c"
    assert first.delivery_info["redelivered"] is False


def test_an_acked_message_is_gone_and_a_requeued_one_comes_again(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    queue = Queue("orders")
    publish(kombu, ["a", "b"], queue)
    receiver = Receiver(kombu, queue, prefetch=2)
    receiver.wait_for(2)
    receiver.messages[0].ack()
    receiver.messages[1].requeue()
    assert receiver.wait_for(3) == ["a", "b", "b"]
    assert receiver.messages[2].delivery_info["redelivered"] is True
    receiver.messages[2].ack()
    kombu.close()
    assert cluster_client.queue("orders").messages == 0


def test_a_rejected_message_goes_to_the_dead_letter_queue_if_there_is_one(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    cluster_client.declare(fifo.QueueSpec("lost"))
    lost = Queue("lost")
    kept = Queue("kept", queue_arguments={"x-dead-letter-routing-key": "dead"})
    publish(kombu, ["a"], lost)
    publish(kombu, ["b"], kept)
    receiver = Receiver(kombu, lost, kept)
    receiver.wait_for(2)
    for message in receiver.messages:
        message.reject()
    assert cluster_client.queue("lost").messages == 0  # declared without one, by another program
    assert cluster_client.queue("kept").messages == 0
    assert cluster_client.queue("dead").ready == 1


def test_a_channel_that_closes_gives_back_what_it_holds(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    queue = Queue("orders")
    publish(kombu, [1, 2, 3], queue)
    receiver = Receiver(kombu, queue, prefetch=2)
    receiver.wait_for(2)
    receiver.channel.close()
    view = cluster_client.queue("orders")
    assert (view.ready, view.locked) == (3, 0)
    (message, *_) = cluster_client.get("orders")
    assert message.failures == 0


def test_a_cancelled_consumer_keeps_what_it_handed_over_and_nothing_else(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    queue = Queue("orders")
    publish(kombu, [1, 2, 3, 4], queue)
    receiver = Receiver(kombu, queue, prefetch=4)
    receiver.connection.drain_events(timeout=SECONDS)
    seen = len(receiver.messages)
    receiver.consumer.cancel()
    assert cluster_client.queue("orders").locked == seen
    for message in receiver.messages:
        message.ack()
    kombu.close()
    assert cluster_client.queue("orders").messages == 4 - seen


def test_a_prefetch_bounds_what_is_held_and_may_change(kombu: Connection) -> None:
    queue = Queue("orders")
    publish(kombu, [1, 2, 3, 4, 5], queue)
    receiver = Receiver(kombu, queue, prefetch=1)
    receiver.wait_for(1)
    assert receiver.is_silent()
    receiver.consumer.qos(prefetch_count=3)
    receiver.messages[0].ack()
    receiver.wait_for(4)
    assert receiver.is_silent()
    for message in receiver.messages[1:]:
        message.ack()
    assert receiver.wait_for(5) == [1, 2, 3, 4, 5]


def test_acks_of_several_are_those_up_to_the_tag(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    queue = Queue("orders")
    publish(kombu, [1, 2, 3], queue)
    receiver = Receiver(kombu, queue)
    receiver.wait_for(3)
    receiver.messages[1].ack(multiple=True)
    receiver.channel.close()
    kombu.close()
    (message, *rest) = cluster_client.get("orders", 3)
    assert (message.body, rest) == (b"3", [])


def test_get_without_a_consumer(kombu: Connection, cluster_client: BlockingClient) -> None:
    queue = Queue("orders")
    publish(kombu, [1, 2], queue)
    with kombu.channel() as channel:
        bound = queue(channel)
        first = bound.get()
        first.ack()
        assert bound.get(no_ack=True).payload == 2
        assert bound.get() is None
    kombu.close()
    assert cluster_client.queue("orders").messages == 0


def test_a_get_finds_what_was_requeued_a_moment_ago(kombu: Connection) -> None:
    queue = Queue("orders")
    publish(kombu, [1], queue)
    with kombu.channel() as channel:
        bound = queue(channel)
        bound.get().requeue()
        again = bound.get()
        assert again.payload == 1
        again.ack()
        assert bound.get() is None


def test_a_consumer_without_acks_holds_nothing(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    queue = Queue("orders", no_ack=True)
    publish(kombu, [1, 2], queue)
    receiver = Receiver(kombu, queue, prefetch=1)
    assert receiver.wait_for(2) == [1, 2]
    receiver.messages[0].ack()  # nothing to ack, and no error
    kombu.close()
    assert cluster_client.queue("orders").messages == 0


def test_an_eta_waits_in_the_broker(kombu: Connection, cluster_client: BlockingClient) -> None:
    publish(kombu, [1], Queue("orders"), headers={"eta": "2999-01-01T00:00:00+00:00"})
    (view,) = cluster_client.delayed("orders")
    assert view.cause == "published"


def test_queues_of_other_processes_get_fanouts_topics_and_replies(
    shared_cluster: SharedCluster, kombu: Connection, cluster_client: BlockingClient
) -> None:
    fanout, topic = Exchange("all", "fanout"), Exchange("events", "topic")
    direct = Exchange("replies", "direct")
    queues = [
        Queue("w1.all", fanout, auto_delete=True),
        Queue("w1.events", topic, "task.#", auto_delete=True),
        Queue("w1.replies", direct, "w1", auto_delete=True),
    ]
    receiver = Receiver(kombu, *queues)
    with Connection(shared_cluster.url) as other, other.channel() as channel:
        producer = Producer(channel)
        producer.publish("f", exchange=fanout, declare=[fanout])
        producer.publish("t", exchange=topic, routing_key="task.sent", declare=[topic])
        producer.publish("-", exchange=topic, routing_key="worker.online", declare=[topic])
        producer.publish("r", exchange=direct, routing_key="w1", declare=[direct])
        producer.publish("-", exchange=direct, routing_key="w2", declare=[direct])
    assert sorted(receiver.wait_for(3)) == ["f", "r", "t"]
    assert receiver.is_silent()
    for message in receiver.messages:
        message.ack()
    for queue in queues:
        queue(receiver.channel).delete()
    assert cluster_client.queues() == []


def test_the_mark_of_a_queue_that_is_gone_goes_at_the_next_publish(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    exchange = Exchange("all", "fanout")
    with kombu.channel() as channel:
        Queue("gone", exchange)(channel).declare()
        cluster_client.delete("gone")
        Producer(channel).publish(1, exchange=exchange)
    assert [queue.name for queue in cluster_client.queues()] == ["gone.dead"]


def test_a_queue_that_an_app_deletes_takes_its_empty_dead_letter_queue_along(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    with kombu.channel() as channel:
        for name in ("empty", "full"):
            Queue(name)(channel).declare()
        cluster_client.publish("full.dead", b"x")
        for name in ("empty", "full"):
            Queue(name)(channel).delete()
    assert [queue.name for queue in cluster_client.queues()] == ["full.dead"]


def test_a_publish_into_nothing(kombu: Connection, caplog: pytest.LogCaptureFixture) -> None:
    with kombu.channel() as channel:
        producer = Producer(channel)
        with pytest.raises(NotFound, match="no queue 'nowhere'"):
            producer.publish(1, routing_key="nowhere")
        exchange = Exchange("unbound", "direct")
        producer.publish(1, exchange=exchange, routing_key="k", declare=[exchange])
        with pytest.raises(NotFound, match="no queue is bound to exchange 'unbound' by 'k'"):
            producer.publish(1, exchange=exchange, routing_key="k", mandatory=True)
    assert "no queue is bound to exchange 'unbound' by 'k'" in caplog.text


def test_a_queue_that_exists_is_used_as_it_is(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    cluster_client.declare(fifo.QueueSpec("orders", lock=7))
    publish(kombu, [1], Queue("orders"))
    assert cluster_client.queue("orders").spec["lock_ms"] == 7000


def test_delete_refuses_a_queue_in_use_or_with_messages(kombu: Connection) -> None:
    queue = Queue("orders")
    publish(kombu, [1], queue)
    with kombu.channel() as channel:
        bound = queue(channel)
        with pytest.raises(PreconditionFailed, match="has 1 messages"):
            bound.delete(if_empty=True)
        receiver = Receiver(kombu, queue)
        with pytest.raises(PreconditionFailed, match="has 1 consumers"):
            bound.delete(if_unused=True)
        receiver.channel.close()
        assert bound.purge() == 1
        assert bound.delete(if_unused=True, if_empty=True) == 0
        with pytest.raises(NotFound, match="no queue 'orders'"):
            bound.queue_declare(passive=True)


def test_the_consumer_of_a_deleted_queue_ends_as_in_amqp(
    kombu: Connection, cluster_client: BlockingClient
) -> None:
    queue = Queue("orders")
    publish(kombu, [1], queue)
    receiver = Receiver(kombu, queue)
    receiver.wait_for(1)
    cluster_client.delete("orders")
    with pytest.raises(ConsumerCancelled, match="queue 'orders' was deleted"):
        receiver.wait_for(2)


def test_kombus_event_loop_hands_messages_over(kombu: Connection) -> None:
    queue = Queue("orders")
    receiver = Receiver(kombu, queue)
    hub = Hub()
    kombu.register_with_event_loop(hub)
    publish(kombu, [1, 2, 3], queue)
    while len(receiver.messages) < 3:
        hub.run_once()
    assert [message.payload for message in receiver.messages] == [1, 2, 3]
    kombu.transport.unregister_from_event_loop(kombu.connection, hub)
    hub.close()


def test_a_fork_uses_a_connection_of_its_own(kombu: Connection) -> None:
    queue = Queue("orders")
    publish(kombu, [1], queue)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            kombu.collect()
            publish(kombu, [2], queue)
            kombu.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    receiver = Receiver(kombu, queue)
    assert receiver.wait_for(2) == [1, 2]


async def test_a_lost_leader_is_invisible(
    shared_cluster: SharedCluster, kombu: Connection, cluster_client: BlockingClient
) -> None:
    queue = Queue("orders")
    count = 300
    failed: list[BaseException] = []

    def produce() -> None:
        try:
            with Connection(shared_cluster.url) as other:
                publish(other, list(range(count)), queue)
        except BaseException as error:
            failed.append(error)

    producing = threading.Thread(target=produce)
    publish(kombu, ["first"], queue)
    receiver = Receiver(kombu, queue, prefetch=10)
    producing.start()
    settled = 0

    def settle_until(enough: int) -> None:
        nonlocal settled
        while settled < enough:
            receiver.wait_for(settled + 1)
            for message in receiver.messages[settled:]:
                message.ack()
            settled = len(receiver.messages)

    await _on_thread(lambda: settle_until(50))
    leader = await shared_cluster.leader()
    await shared_cluster.crash(leader.me.name)
    await _on_thread(lambda: settle_until(count + 1))
    await _on_thread(producing.join)
    assert failed == []
    found = [message.payload for message in receiver.messages]
    assert found == ["first", *range(count)]
    await _on_thread(kombu.close)
    assert (await _on_thread(lambda: cluster_client.queue("orders"))).messages == 0


async def _on_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(call)
