"""Proves that views are typed pictures of what a node sends: no key lost, durations in seconds."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

import fifo
from fifo.client.views import View, view, views

NOT_AN_ATTRIBUTE = {"suspected"}
"""Keys that say the same as another one does."""


def unknown(shown: View) -> set[str]:
    """The keys of a sent map that have no attribute."""
    known = {one.metadata.get("key") for one in fields(shown)}
    return set(shown.as_dict()) - known - NOT_AN_ATTRIBUTE


def test_durations_are_seconds_and_the_map_stays_as_it_was_sent() -> None:
    sent = {"token": 7, "remaining_ms": 1500, "checkout_ms_ago": 250, "id": "1.2.3"}
    shown = view(fifo.LockView, sent)
    assert (shown.token, shown.remaining_s, shown.held_s, shown.id) == (7, 1.5, 0.25, "1.2.3")
    assert shown.as_dict() == sent


def test_a_missing_key_has_the_default_and_an_unknown_one_is_kept() -> None:
    shown = view(fifo.QueueView, {"name": "orders", "new_in_1_9": 5})
    assert (shown.name, shown.ready, shown.spec, shown.redrive) == ("orders", 0, {}, None)
    assert shown.as_dict()["new_in_1_9"] == 5


def test_nested_maps_are_views_too() -> None:
    queue = view(fifo.QueueView, {"redrive": {"status": "paused", "moved": 3}})
    assert queue.redrive is not None
    assert (queue.redrive.status, queue.redrive.moved) == ("paused", 3)
    node = view(fifo.NodeStatus, {"peers": [{"name": "n2", "lag": 4}], "fsync_ms": {"p50": 2.0}})
    assert [(peer.name, peer.lag) for peer in node.peers] == [("n2", 4)]
    assert (node.fsync_s, node.snapshot.index) == ({"p50": 0.002}, 0)


def test_a_view_cannot_be_changed() -> None:
    shown = view(fifo.QueueView, {"name": "orders"})
    with pytest.raises(FrozenInstanceError):
        shown.ready = 1  # type: ignore[misc]


@pytest.mark.parametrize("sent", [None, 5, ["a"]])
def test_an_answer_that_is_no_map_is_a_protocol_error_with_its_type(sent: object) -> None:
    with pytest.raises(fifo.ProtocolError, match=f"QueueView, got {type(sent).__name__}"):
        view(fifo.QueueView, sent)
    with pytest.raises(fifo.ProtocolError, match="got dict"):
        views(fifo.QueueView, {})


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_every_key_that_a_node_sends_has_an_attribute(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders", dead_letter="dlq"))
    producer = await client.open_producer("loader")
    await producer.publish_many("orders", [b"1", b"2", b"3"])
    dead, held = await client.get("orders", 2)
    await dead.terminate("why")
    await client.publish("orders", b"later", delay=60)
    await client.redrive("dlq", "orders")
    shown: list[View] = [await client.status(), *(await client.status()).peers]
    shown += [await client.queue("orders"), await client.queue("dlq")]
    redrive = (await client.queue("dlq")).redrive
    assert redrive is not None
    [lock] = await client.locks("orders")
    [delayed] = await client.delayed("orders")
    [consumer] = await client.consumers("orders")
    [named] = await client.producers("orders")
    shown += [redrive, lock, delayed, consumer, named, (await client.status()).snapshot]
    assert not [(one, keys) for one in shown if (keys := unknown(one))]
    assert (lock.token, lock.id) == (held.token, held.id)
    assert lock.client == consumer.client == "fifo-python"
    # Only the beginning: the whole id is what takes a session over.
    assert lock.session == consumer.session == client._session.identity.session.hex()[:8]
    assert 25 < lock.remaining_s <= 30
    assert 50 < delayed.due_in_s <= 60
