"""The client written from the page alone, on three real nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.wire import stranger
from tests.wire.stranger import Refused, Stranger

if TYPE_CHECKING:
    from tests.support.shared import SharedCluster

pytestmark = pytest.mark.cluster


def with_stranger(cluster: SharedCluster, script: Callable[[Stranger], None]) -> None:
    """Run a script, redirected to the leader by the followers."""
    leader = cluster.leading()
    assert leader is not None
    others = [node.me for node in cluster.followers()]
    client = stranger.connect([str(node.client) for node in [*others, leader.me]])
    assert client.welcome[1] == leader.me.name
    try:
        script(client)
        client.close()
    finally:
        client.socket.close()


def everything_on_the_page(client: Stranger) -> None:
    assert client.declare("orders.dead")
    assert client.declare("orders", dead_letter="orders.dead", nack_backoff="fixed:0s")
    assert not client.declare("orders", dead_letter="orders.dead", nack_backoff="fixed:0s")

    ids = client.publish("orders", [b"one", b"", b"three"], [b"a", b"", b"c"])
    again = client.publish("orders", [b"four"], [b""])
    assert len({*ids, *again}) == 4

    consumer = client.subscribe("orders", 2)
    first, second = client.receive(), client.receive()
    assert (first.consumer, first.id, first.body, first.key) == (consumer, ids[0], b"one", b"a")
    assert (second.id, second.body, second.key, second.attempt) == (ids[1], b"", b"", 1)
    assert client.settle(first, stranger.ACK)[2:] == [0, False]
    assert client.settle(first, stranger.ACK)[2] == 1, "already settled"
    assert client.settle(second, stranger.NACK)[2:] == [0, False]

    third, returned = sorted([client.receive(), client.receive()], key=lambda one: one.attempt)
    assert (third.id, third.body, third.key) == (ids[2], b"three", b"c")
    assert (returned.id, returned.attempt) == (ids[1], 2)
    assert client.settle(returned, stranger.TERMINATE, reason="empty")[2] == 0
    assert client.settle(third, stranger.ACK)[2] == 0
    fourth = client.receive()
    assert (fourth.id, fourth.body) == (again[0], b"four")
    assert client.settle(fourth, stranger.RELEASE)[2] == 0

    client.subscribe("orders.dead", 1)
    dead = client.receive()
    while dead.id == fourth.id:
        dead = client.receive()
    assert (dead.id, dead.body) == (ids[1], b"")


def refusals_of_the_page(client: Stranger) -> None:
    client.declare("orders")
    with pytest.raises(Refused) as other_spec:
        client.declare("orders", lock_ms=5_000)
    assert other_spec.value.args[1] == "queue_exists"
    assert other_spec.value.args[4] == {"differences": {"lock_ms": [30_000, 5_000]}}

    with pytest.raises(Refused) as no_queue:
        client.publish("nowhere", [b"x"], [b""])
    assert no_queue.value.args[1] == "queue_not_found"

    ids = client.publish("orders", [b"one", b"two"], [b"", b""])
    client.numbers["orders"] = 0
    assert client.publish("orders", [b"one", b"two"], [b"", b""]) == ids, "duplicates: same ids"
    client.numbers["orders"] = 7
    with pytest.raises(Refused) as gap:
        client.publish("orders", [b"nine"], [b""])
    assert gap.value.args[0] == "gap"
    assert gap.value.args[2:] == (True, {"expected": 2})

    client.subscribe("orders", 10)
    assert [client.receive().body for _ in range(2)] == [b"one", b"two"], "nothing appears twice"


GET, RENEW, ALIVE, CANCEL, CREDIT, OPEN_PRODUCER = 24, 29, 31, 23, 22, 18
QUERY, ACTION, UPDATE, PEEK, STATUS, NO_SUCH_TYPE = 43, 42, 41, 44, 49, 4_711


def requests_of_the_page(client: Stranger) -> None:
    client.declare("orders")
    ids = client.publish("orders", [b"one", b"two", b"three"], [b"", b"", b""])

    (peeked,) = client.request(PEEK, "orders", 2)
    assert peeked[:2] == ["orders", 2]
    assert sum(run[0] for run in peeked[3]) == 2
    ((consumer, first_token, count),) = client.request(GET, "orders", 1, 0, 5_000, True)
    assert count == 1
    got = client.receive()
    assert (got.consumer, got.token, got.id) == (consumer, first_token, ids[0])
    (renewed,) = client.request(RENEW, [[consumer, [[got.token, got.token + 5]]]])
    ((of, ((first, last, remaining_ms),), lost),) = renewed[0]
    assert (of, first, last, lost) == (consumer, got.token, got.token, [])
    assert 4_000 < remaining_ms <= 5_000
    (locks,) = client.request(QUERY, "orders", "locks")[0]
    assert [lock["id"] for lock in locks] == [got.id]
    assert client.settle(got, stranger.ACK)[2] == 0

    by_credit = client.request(stranger.SUBSCRIBE, "orders", "c", 9, None, None, 0, True, True)
    assert client.request(CREDIT, by_credit[0][0], 1)[0][0] == {"left": 0}
    assert client.receive().id == ids[1]
    assert client.deliveries == []
    assert client.request(ALIVE, by_credit[0][0]) == [[]]
    assert client.request(CANCEL, by_credit[0][0]) == [[]]

    (listed,) = client.request(QUERY, None, "list")[0]
    assert [(one["name"], one["ready"], one["locked"]) for one in listed] == [("orders", 1, 1)]
    assert client.request(UPDATE, "orders", {"max_length": 10}) == [[]]
    assert client.request(QUERY, "orders", "show")[0][0]["spec"]["max_length"] == 10
    assert client.request(ACTION, "orders", "pause") == [[]]
    assert client.request(ACTION, "orders", "resume") == [[]]
    assert client.request(ACTION, "orders", "purge")[0][0] == {"messages": 1}
    opened = client.request(OPEN_PRODUCER, "loader")[0][0]
    assert opened["last"] == {}
    assert client.request(STATUS)[0][0]["role"] == "leader"
    with pytest.raises(Refused) as unknown:
        client.request(NO_SUCH_TYPE, "from", {"the": "future"})
    assert unknown.value.args[1] == "unsupported"
    assert client.request(STATUS)[0][0]["role"] == "leader", "the stream goes on"


def a_resume_of_the_page(client: Stranger) -> None:
    client.declare("orders")
    client.publish("orders", [b"one", b"two"], [b"", b""])
    consumer = client.subscribe("orders", 10)
    before = [client.receive(), client.receive()]
    assert client.settle(before[0], stranger.ACK)[2] == 0
    host, port = client.socket.getpeername()
    client.socket.close()

    back = stranger.connect([f"{host}:{port}"], resumed=client)
    assert back.welcome[4] == 1, "resumed"
    assert back.welcome[9] == [[consumer, "stranger", "orders", 30_000]]
    assert back.receive() == before[1], "what is still locked comes again under its token"
    assert back.settle(before[0], stranger.ACK)[2] == 1, "already settled"
    assert back.settle(before[1], stranger.ACK)[2] == 0
    back.numbers = {"orders": 1}
    assert back.publish("orders", [b"two", b"three"], [b"", b""])[0] == before[1].id
    assert back.receive().body == b"three"
    client.socket, client.correlation = back.socket, back.correlation


def test_a_stranger_makes_every_other_request_of_the_page(shared_cluster: SharedCluster) -> None:
    with_stranger(shared_cluster, requests_of_the_page)


def test_a_stranger_resumes_its_session_as_the_page_says(shared_cluster: SharedCluster) -> None:
    with_stranger(shared_cluster, a_resume_of_the_page)


def test_a_stranger_publishes_consumes_and_settles_on_real_nodes(
    shared_cluster: SharedCluster,
) -> None:
    with_stranger(shared_cluster, everything_on_the_page)


def test_a_stranger_is_refused_as_the_page_says(shared_cluster: SharedCluster) -> None:
    with_stranger(shared_cluster, refusals_of_the_page)
