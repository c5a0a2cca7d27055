"""Proves that a client follows the nodes of its cluster, which change while it is connected."""

from __future__ import annotations

from functools import partial

import fifo
from fifo.client import Environment, from_url
from fifo.client.connection.dialing import Dialer
from fifo.wire.messages import Ping, Pong, Publish
from tests.support.wire_peer import Peer, confirm_all, until, welcome


async def test_a_connected_client_finds_the_cluster_at_the_nodes_that_it_has_now() -> None:
    async with Peer() as old, Peer() as new:
        old.opening = partial(welcome, nodes=(("n1", old.address), ("n2", "127.0.0.1:1")))
        new.opening = partial(welcome, term=2)
        old.answers[Publish] = new.answers[Publish] = confirm_all
        async with fifo.connect(old.url) as client:
            await client.publish("orders", b"1")
            old.line().send(Ping((("n1", old.address), ("n4", new.address))), 5)
            await old.hear(Pong)
            await old.stop()
            await client.publish("orders", b"2")
            assert new.lines


async def test_a_ping_without_nodes_changes_none() -> None:
    async with Peer() as old, Peer() as new:
        nodes = (("n1", old.address), ("n4", new.address))
        old.opening = partial(welcome, nodes=nodes)
        new.opening = partial(welcome, term=2)
        old.answers[Publish] = new.answers[Publish] = confirm_all
        async with fifo.connect(old.url) as client:
            await client.publish("orders", b"1")
            old.line().send(Ping(), 5)
            await old.hear(Pong)
            await old.stop()
            await client.publish("orders", b"2")
            await until(lambda: new.lines)


def test_the_list_of_a_leader_replaces_that_of_an_earlier_one_and_never_the_options() -> None:
    dialer = Dialer(from_url("fifo://a:1,b:1"), Environment())
    dialer.learn_all([("n1", "a:1"), ("n3", "c:1")])
    assert list(dialer.addresses) == ["a:1", "b:1", "c:1"]
    dialer.learn_all([("n4", "d:1"), ("n5", "e:1")])
    assert list(dialer.addresses) == ["a:1", "b:1", "d:1", "e:1"]
    dialer.learn([("n3", "c:1")])
    assert list(dialer.addresses) == ["a:1", "b:1", "d:1", "e:1", "c:1"]
    for number in range(1_000):
        dialer.learn_all([("n", f"h{number}:1")])
    assert list(dialer.addresses) == ["a:1", "b:1", "h999:1"]
