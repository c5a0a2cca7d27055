"""Sessions over connections and leaders: resume, fencing, silence, locks, renewals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from fifo.wire import Buffer, columns
from fifo.wire.messages import (
    SESSION_RESUMED,
    Cancel,
    Close,
    Confirms,
    Credit,
    Declare,
    Deliver,
    Error,
    Get,
    Got,
    Notice,
    NoticeAck,
    Ok,
    Ping,
    Publish,
    QueueAction,
    QueueQuery,
    Redirect,
    Renew,
    Renewed,
    Resumed,
    Status,
    Welcome,
)
from fifo.words.settlement import Verb
from node.broker import limits
from node.raft import Outcome, RaftNode
from node.server import Node
from tests.support import raft_probe
from tests.support.cluster import LocalCluster, eventually, leadership_of, passed, running
from tests.support.rawclient import RawClient, connected


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with running(tmp_path) as started:
        await started.leader()
        yield started


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path, count=1) as started:
        yield await started.leader()


async def holding(node: Node, bodies: list[bytes], **spec: object) -> tuple[RawClient, int]:
    """A client that holds these messages of queue q, and its consumer."""
    client = await connected(node.me.client)
    await client.declare("q", **spec)
    consumer = (await client.subscribe("q", prefetch=100, tag="t")).consumer
    await client.confirmed(client.publish("q", 0, 1, bodies))
    received: list[bytes] = []
    while len(received) < len(bodies):
        received += (await client.delivery())[1]
    return client, consumer


async def overview(client: RawClient) -> dict[str, int]:
    answer = await client.ask(QueueQuery("q", "show"))
    assert isinstance(answer, Ok), answer
    result: dict[str, int] = answer.result
    return result


# --- leaders --------------------------------------------------------------------------------------


async def test_a_follower_names_the_leader_and_closes(cluster: LocalCluster) -> None:
    leader = await cluster.leader()
    for follower in cluster.followers():
        client = await RawClient().connect(follower.me.client)
        frame = await client.hello()
        assert isinstance(frame.message, Redirect)
        assert frame.message.leader == leader.me.name
        assert frame.message.address == str(leader.me.client)
        assert not frame.message.moved
        await client.closed()
        await client.close()


async def test_any_node_reports_its_status_to_an_observer(cluster: LocalCluster) -> None:
    leader = await cluster.leader()
    for node in cluster.nodes.values():
        client = await RawClient().connect(node.me.client)
        await client.welcome(role=2)
        answer = await client.ask(Status())
        assert isinstance(answer, Ok)
        assert answer.result["node"] == node.me.name
        assert answer.result["leader"] == leader.me.name
        assert answer.result["role"] == ("leader" if node is leader else "follower")
        await client.close()


async def test_when_the_leader_stops_its_clients_move_and_lose_nothing(
    cluster: LocalCluster,
) -> None:
    leader = await cluster.leader()
    client, consumer = await holding(leader, [b"one", b"two"])
    await cluster.stop(leader.me.name)
    said = await client.closed()
    assert isinstance(said[-1], Redirect)
    assert said[-1].moved
    other = await cluster.leader()
    again = await RawClient(client.session, client.incarnation).connect(other.me.client)
    welcome = await again.welcome(resume=True)
    assert welcome.session_state == 1
    assert [one[0] for one in welcome.consumers] == [consumer]
    message, bodies = await again.delivery()
    assert (message.repeat, message.first_token, bodies) == (True, 1, [b"one", b"two"])
    # What was confirmed by the old leader is a duplicate for the new one, and nothing is stored.
    item = await again.confirmed(again.publish("q", 0, 1, [b"one", b"two"]))
    assert item[3:5] == (2, 0)
    assert await again.settle(consumer, 1, 2) == ((1, 2, 0, False),)
    await again.close()
    await client.close()


@pytest.mark.slow
async def test_a_leader_that_dies_is_replaced_and_every_replica_agrees(
    cluster: LocalCluster,
) -> None:
    leader = await cluster.leader()
    client, consumer = await holding(leader, [b"m%d" % i for i in range(50)])
    await client.settle(consumer, 1, 20)
    await cluster.crash(leader.me.name)
    other = await cluster.leader()
    again = await RawClient(client.session, client.incarnation).connect(other.me.client)
    await again.welcome(resume=True)
    assert (await again.settle(consumer, 15, 30))[0][2] == 1  # settled before: already_settled
    await cluster.start(leader.me.name)

    def agreed() -> bool:
        machines = [node.broker.host.machine for node in cluster.nodes.values()]
        return len(machines) == 3 and len({machine.digest() for machine in machines}) == 1

    await eventually(agreed)
    await again.close()
    await client.close()


async def test_an_idle_cluster_commits_nothing(cluster: LocalCluster) -> None:
    leader = await cluster.leader()
    client = await connected(leader.me.client)
    await client.declare("q")
    before = (await client.ask(Status())).result["commit"]  # type: ignore[attr-defined]  # an Ok
    await passed(0.7)
    after = (await client.ask(Status())).result["commit"]  # type: ignore[attr-defined]  # an Ok
    assert after == before
    await client.close()


# --- connections ----------------------------------------------------------------------------------


async def test_a_cut_connection_resumes_with_the_same_locks(node: Node) -> None:
    client, consumer = await holding(node, [b"one", b"two", b"three"])
    await client.settle(consumer, 2, 2)
    await client.close()
    again = await RawClient(client.session, client.incarnation).connect(node.me.client)
    welcome = await again.welcome(resume=True)
    assert (welcome.session_state, welcome.epoch) == (1, 2)
    tokens: dict[int, bytes] = {}
    while len(tokens) < 2:
        message, bodies = await again.delivery()
        assert message.repeat
        tokens.update(enumerate(bodies, start=message.first_token))
    assert tokens == {1: b"one", 3: b"three"}
    assert [one[2] for one in await again.settle(consumer, 1, 3)] == [0, 1, 0]
    await again.close()


async def test_a_mark_ends_the_repeats_of_a_resume(node: Node) -> None:
    client, consumer = await holding(node, [b"one", b"two"])
    control = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await control.welcome(role=1, resume=True)
    await client.close()
    again = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await again.welcome(resume=True)
    await again.next(Resumed)
    assert again.arrived == [Welcome, Deliver, Resumed]
    await again.settle(consumer, 1, 2)
    await again.close()
    third = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await third.welcome(resume=True)
    await third.next(Resumed)
    assert third.arrived == [Welcome, Resumed], "at once where nothing is locked"
    await control.ask(Ping())
    assert Resumed not in control.arrived


async def test_a_cancelled_consumer_keeps_its_locks_through_an_interruption(node: Node) -> None:
    client, consumer = await holding(node, [b"one", b"two"])
    other = await connected(node.me.client)
    await other.subscribe("q", tag="t")
    assert isinstance(await client.ask(Cancel(consumer)), Ok)
    await client.close()

    async def connected_still() -> bool:
        answer = await other.ask(QueueQuery("q", "consumers"))
        assert isinstance(answer, Ok), answer
        return any(one["consumer"] == consumer and not one["flags"] for one in answer.result)

    async with asyncio.timeout(10):
        while await connected_still():
            await passed(0.01)
    again = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await again.welcome(resume=True)
    message, bodies = await again.delivery()
    assert (message.repeat, message.first_token, bodies) == (True, 1, [b"one", b"two"])
    assert [one[2] for one in await again.settle(consumer, 1, 2)] == [0]
    assert not [one for one in other.frames if isinstance(one.message, Deliver)]
    await again.close()
    await other.close()


async def test_another_client_object_with_the_session_takes_it(node: Node) -> None:
    client, _ = await holding(node, [b"one"])
    control = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await control.welcome(role=1, resume=True)
    other = await RawClient(client.session).connect(node.me.client)
    assert (await other.welcome()).session_state == 1
    for fenced in (client, control):
        said = await fenced.closed()
        assert isinstance(said[-1], Error)
        assert said[-1].code == "session_taken"
        await fenced.close()
    assert (await other.delivery())[1] == [b"one"]
    await other.close()


async def test_a_session_that_was_taken_from_a_client_that_was_away_is_not_its_own_any_more(
    node: Node,
) -> None:
    client, _ = await holding(node, [b"one"])
    await client.close()
    other = await RawClient(client.session).connect(node.me.client)
    await other.welcome()
    for role in (0, 1):
        again = await RawClient(client.session, client.incarnation).connect(node.me.client)
        answer = (await again.hello(role=role, resume=True)).message
        assert isinstance(answer, Error)
        assert answer.code == "session_taken"
        await again.close()
    assert (await other.delivery())[1] == [b"one"]
    await other.close()


async def test_a_late_close_of_an_old_connection_leaves_the_new_one_alone(node: Node) -> None:
    client, _ = await holding(node, [b"one"])
    again = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await again.welcome(resume=True)
    await again.delivery()
    await client.closed()
    await client.close()
    await again.confirmed(again.publish("q", 1, 2, [b"two"]))
    assert (await again.delivery())[1] == [b"two"]
    await again.close()


async def test_a_disconnect_that_does_not_get_into_the_log_is_said_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = await holding(node, [b"one"])
    machine = node.broker.host.machine
    number = machine.session_of(client.session)
    assert number is not None
    submit = RaftNode.submit
    refused: list[Outcome] = []

    def full(raft: RaftNode, parts: Sequence[Buffer], done: Callable[[Outcome, int], None]) -> None:
        if refused:
            submit(raft, parts, done)
            return
        refused.append(Outcome.QUEUE_FULL)
        asyncio.get_running_loop().call_soon(done, refused[0], 0)

    monkeypatch.setattr(RaftNode, "submit", full)
    await client.close()

    def is_disconnected() -> bool:
        view = machine.session_view(number)
        return view is not None and view["disconnected"]

    await eventually(is_disconnected)
    assert refused


async def test_a_silent_session_is_disconnected_and_gets_nothing_new(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    silent = await RawClient().connect(node.me.client)
    frame = await silent.hello(heartbeat_ms=500)
    assert isinstance(frame.message, Welcome)
    assert frame.message.heartbeat_ms == 500
    await silent.subscribe("q")
    silent._reader._transport.pause_reading()  # type: ignore[attr-defined]  # it answers no ping
    await eventually(lambda: len(node.broker.connections) == 1)
    item = await client.confirmed(client.publish("q", 0, 1, [b"one"]))
    assert item[4] == 1
    assert (await overview(client))["ready"] == 1
    await silent.close()
    await client.close()


async def test_a_data_connection_may_be_silent_while_the_control_connection_speaks(
    node: Node,
) -> None:
    data = await RawClient().connect(node.me.client)
    await data.hello(heartbeat_ms=500)
    control = await RawClient(data.session, data.incarnation).connect(node.me.client)
    await control.hello(role=1, resume=True, heartbeat_ms=500)
    loop = asyncio.get_running_loop()
    until = loop.time() + 2.0
    data._reader._transport.pause_reading()  # type: ignore[attr-defined]  # its loop is blocked
    while loop.time() < until:
        await control.ask(Ping())
        await passed(0.1)
    data._reader._transport.resume_reading()  # type: ignore[attr-defined]  # and goes on
    await data.declare("q")
    await data.close()
    await control.close()


async def test_the_node_speaks_when_it_has_been_silent(node: Node) -> None:
    client = await RawClient().connect(node.me.client)
    await client.hello(heartbeat_ms=500)
    pings = 0
    original = client.send

    def counted(message: object, correlation: int = 0, raw: object = ()) -> None:
        nonlocal pings
        pings += type(message).__name__ == "Pong"
        original(message, correlation, raw)  # type: ignore[arg-type]  # passed through

    client.send = counted  # type: ignore[method-assign]  # counts the answers to pings
    reading = asyncio.create_task(client.take(lambda frame: False))
    await eventually(lambda: pings >= 2)
    reading.cancel()
    await client.close()


async def test_closing_a_session_returns_what_it_held_uncounted(node: Node) -> None:
    client, _ = await holding(node, [b"one", b"two"])
    client.send(Close(), 9)
    assert Ok() in await client.closed()
    await client.close()
    other = await connected(node.me.client)
    seen = await overview(other)
    assert (seen["ready"], seen["locked"], seen["consumers"]) == (2, 0, 0)
    await other.subscribe("q")
    _, bodies = await other.delivery()
    assert bodies == [b"one", b"two"]
    await other.close()


# --- locks ----------------------------------------------------------------------------------------


async def test_an_expired_lock_is_noticed_and_the_message_goes_to_another(node: Node) -> None:
    client, consumer = await holding(node, [b"one"], lock_ms=1000)
    loop = asyncio.get_running_loop()
    held_at = loop.time()
    other = await connected(node.me.client)
    other_consumer = (await other.subscribe("q")).consumer
    message, bodies = await other.delivery()
    late_s = loop.time() - held_at - 1.0
    assert -0.05 < late_s < 3.0, "not before its deadline, and soon after"
    assert (bodies, message.columns[1][0]) == ([b"one"], 16), "with its attempt"
    notice = await client.next(Notice)
    assert (notice.kind, notice.consumer, notice.tokens) == (0, consumer, ((1, 1),))
    assert isinstance(await client.ask(NoticeAck(notice.notice)), Ok)
    assert (await client.settle(consumer, 1, 1))[0][2] == 2  # lock_lost
    assert (await other.settle(other_consumer, 1, 1))[0][2] == 0
    await client.close()
    await other.close()


async def test_a_notice_comes_again_at_the_resume_until_it_is_acknowledged(node: Node) -> None:
    client, _ = await holding(node, [b"one"], lock_ms=1000)
    notice = await client.next(Notice)
    await client.close()
    again = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await again.welcome(resume=True)
    same = await again.next(Notice)
    assert (same.tokens, same.notice > notice.notice) == (notice.tokens, True)
    await again.ask(NoticeAck(same.notice))
    await again.close()
    third = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await third.welcome(resume=True)
    await third.ask(Status())
    assert not [one for one in third.frames if isinstance(one.message, Notice)]
    await third.close()


async def test_a_renewed_lock_outlives_its_deadline_without_a_log_entry(node: Node) -> None:
    client, consumer = await holding(node, [b"one", b"two"], lock_ms=1000)
    control = await RawClient(client.session, client.incarnation).connect(node.me.client)
    await control.welcome(role=1, resume=True)
    before = (await control.ask(Status())).result["last"]  # type: ignore[attr-defined]  # an Ok
    loop = asyncio.get_running_loop()
    until = loop.time() + 2.5
    while loop.time() < until:
        answer = await control.ask(Renew(((consumer, ((1, 2),)),)))
        assert isinstance(answer, Renewed)
        ((number, renewed, lost),) = answer.items
        assert (number, lost) == (consumer, ())
        assert renewed[0][:2] == (1, 2)
        assert 900 < renewed[0][2] <= 1000
        await passed(0.2)
    after = (await control.ask(Status())).result["last"]  # type: ignore[attr-defined]  # an Ok
    assert after == before
    locks = (await client.ask(QueueQuery("q", "locks"))).result  # type: ignore[attr-defined]  # an Ok
    assert [lock["renewals"] >= 10 for lock in locks] == [True, True]
    assert locks[0]["session"] == client.session.hex()[:8]
    assert (await client.settle(consumer, 1, 2))[0][2] == 0
    await client.close()
    await control.close()


async def test_an_explicit_renewal_is_an_entry_only_where_it_clears_a_suspicion(
    node: Node,
) -> None:
    client, consumer = await holding(node, [b"one", b"two"], lock_ms=1000)
    machine = node.broker.host.machine

    async def renew(token: int, *, explicit: bool) -> Renewed:
        answer = await client.ask(Renew(((consumer, ((token, token),)),), explicit))
        assert isinstance(answer, Renewed)
        return answer

    async def last() -> int:
        answer = await client.ask(Status())
        assert isinstance(answer, Ok)
        return int(answer.result["last"])

    before = await last()
    for _ in range(20):
        await renew(1, explicit=True)
    assert await last() == before
    async with asyncio.timeout(10):
        while not machine.consumers_of("q")[0]["flags"]:
            await renew(2, explicit=False)
            await passed(0.1)
    assert machine.consumers_of("q")[0]["held"] == 1
    # The lock is lost and stays so; but the program has shown that it is alive.
    assert (await renew(1, explicit=True)).items == ((consumer, (), ((1, 1),)),)
    message, bodies = await client.delivery()
    assert (message.first_token, bodies) == (3, [b"one"])
    assert machine.consumers_of("q")[0]["flags"] == []
    await client.close()


async def test_credit_of_the_program_clears_a_suspicion_and_that_of_its_library_does_not(
    node: Node,
) -> None:
    client = await connected(node.me.client)
    await client.declare("q", lock_ms=1000)
    consumer = (await client.subscribe("q", pull=True, tag="t")).consumer
    await client.confirmed(client.publish("q", 0, 1, [b"one"]))
    await client.ask(Credit(consumer, 1))
    assert (await client.delivery())[1] == [b"one"]
    assert (await client.next(Notice)).tokens == ((1, 1),)
    assert await client.ask(Credit(consumer, 1, automatic=True)) == Ok({"left": 1})
    assert await client.ask(Credit(consumer, 1)) == Ok({"left": 0})
    message, bodies = await client.delivery()
    assert (message.first_token, bodies) == (2, [b"one"])
    await client.close()


async def test_unnamed_locks_expire_beside_renewed_ones(node: Node) -> None:
    client, consumer = await holding(node, [b"one", b"two", b"three"], lock_ms=1000)
    loop = asyncio.get_running_loop()
    until = loop.time() + 1.7
    while loop.time() < until:
        await client.ask(Renew(((consumer, ((2, 2),)),)))
        await passed(0.2)
    assert (await client.next(Notice)).tokens == ((1, 1), (3, 3))
    answer = await client.ask(Renew(((consumer, ((1, 3),)),)))
    assert isinstance(answer, Renewed)
    assert answer.items[0][2] == ((1, 1), (3, 3))
    # No other consumer has them yet: a late ack by the last holder is carried out.
    receipt = await client.settle(consumer, 1, 3)
    assert [one[2:] for one in receipt] == [(0, True), (0, False), (0, True)]
    await client.close()


async def test_no_renewal_on_a_single_active_queue_outlasts_a_lock_that_it_does_not_name(
    node: Node,
) -> None:
    client, consumer = await holding(node, [b"one"], lock_ms=5000, ordering="single_active")
    await client.confirmed(client.publish("q", 1, 2, [b"two"]))
    await passed(1.0)
    answer = await client.ask(Renew(((consumer, ((1, 1),)),)))
    assert isinstance(answer, Renewed)
    ((_, ((_, _, left_ms),), _),) = answer.items
    assert left_ms <= 4000, "the second lock ends then, and takes the first along"
    answer = await client.ask(Renew(((consumer, ((1, 2),)),)))
    assert isinstance(answer, Renewed)
    assert [one[2] > 4900 for one in answer.items[0][1]] == [True]
    await client.close()


async def test_a_renewal_never_goes_beyond_the_longest_lock(node: Node) -> None:
    client, consumer = await holding(node, [b"one"], lock_ms=1000, max_lock_ms=1500)
    answer = await client.ask(Renew(((consumer, ((1, 1),)),)))
    assert isinstance(answer, Renewed)
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def renew() -> None:
        while True:
            await client.ask(Renew(((consumer, ((1, 1),)),)))
            await passed(0.02)

    renewing = asyncio.create_task(renew())
    await eventually(lambda: any(isinstance(f.message, Notice) for f in client.frames))
    assert loop.time() - started < 5
    renewing.cancel()
    await client.close()


async def test_without_a_lease_a_renewal_waits_and_is_then_answered_not_now(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = await holding(node, [b"one"])
    raft = raft_probe.running_raft(node)
    lease = raft.lease_until
    monkeypatch.setattr(raft, "lease_until", lambda: 0.0)
    answer = await client.ask(Renew(((consumer, ((1, 1),)),)))
    assert isinstance(answer, Error)
    assert (answer.code, answer.retryable) == ("not_now", True)
    waiting = asyncio.create_task(client.ask(Renew(((consumer, ((1, 1),)),))))
    await passed(0.2)
    assert not waiting.done()
    monkeypatch.setattr(raft, "lease_until", lease)
    assert isinstance(await waiting, Renewed)


async def test_a_token_that_was_never_handed_out_is_not_called_lost(node: Node) -> None:
    client, consumer = await holding(node, [b"one"])
    for unknown in ((consumer, ((2, 9),)), (consumer + 1, ((1, 1),))):
        answer = await client.ask(Renew((unknown,)))
        assert isinstance(answer, Error)
        assert (answer.code, answer.retryable) == ("not_now", True)
    answer = await client.ask(Renew(((consumer, ((1, 9),)), (consumer + 1, ((1, 1),)))))
    assert isinstance(answer, Renewed)
    [(number, granted, lost)] = answer.items
    assert (number, [one[:2] for one in granted], lost) == (consumer, [(1, 1)], ())


async def test_a_client_that_looks_for_a_later_leader_is_redirected_by_this_one(node: Node) -> None:
    client, _ = await holding(node, [b"one"])
    raft = raft_probe.running_raft(node)
    before = raft.status().last_index
    beside = await RawClient(client.session, client.incarnation).connect(node.me.client)
    answer = await beside.hello(resume=True, after_term=raft.term)
    assert isinstance(answer.message, Redirect)
    assert raft.status().last_index == before
    assert (await overview(client))["locked"] == 1
    later = await RawClient(client.session, client.incarnation).connect(node.me.client)
    answer = await later.hello(resume=True, after_term=raft.term - 1)
    assert isinstance(answer.message, Welcome)
    assert answer.message.term == raft.term


async def test_a_leader_whose_log_has_failed_repeats_no_farewell(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that failed in a turn in which clients left had made that turn endless."""
    client, _ = await holding(node, [b"one"])
    refused: list[object] = []

    def submit(parts: object, done: Callable[[Outcome, int], None]) -> None:
        refused.append(parts)
        if len(refused) < 10:
            done(Outcome.NOT_LEADER, 0)

    monkeypatch.setattr(raft_probe.running_raft(node), "submit", submit)
    monkeypatch.setattr(RaftNode, "is_leader", property(lambda _: False))
    await client.close()
    await eventually(lambda: refused)
    assert len(refused) == 1


async def test_no_client_is_let_in_before_the_leaders_own_first_entry_is_applied(
    node: Node,
) -> None:
    leadership = leadership_of(node)
    leadership.admission._waiting = {}
    client = await RawClient().connect(node.me.client)
    waiting = asyncio.create_task(client.hello())
    await passed(0.2)
    assert not waiting.done()
    leadership.admission.begin()
    assert isinstance((await waiting).message, Welcome)


async def test_a_consumer_without_renewal_gets_a_typed_error(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    consumer = (await client.subscribe("q", renewable=False)).consumer
    await client.confirmed(client.publish("q", 0, 1, [b"one"]))
    await client.delivery()
    answer = await client.ask(Renew(((consumer, ((1, 1),)),)))
    assert isinstance(answer, Error)
    assert answer.code == "not_renewable"
    await client.close()


async def test_a_get_returns_ready_messages_or_waits_for_one(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    waiting = asyncio.create_task(client.ask(Get("q", 5, wait_ms=5000)))
    other = await connected(node.me.client)
    await other.confirmed(other.publish("q", 0, 1, [b"one"]))
    got = await waiting
    assert isinstance(got, Got)
    assert (got.first_token, got.count) == (1, 1)
    assert client.arrived[-2:] == [Deliver, Got], "the message comes before the answer"
    loop = asyncio.get_running_loop()
    started = loop.time()
    nothing = await client.ask(Get("q", 1, wait_ms=200))
    assert isinstance(nothing, Got)
    assert (nothing.consumer, nothing.first_token, nothing.count) == (got.consumer, 2, 0)
    assert loop.time() - started >= 0.2
    await client.close()
    await other.close()


@pytest.mark.parametrize("why", ["paused", "key_is_held", "released", "other_holds"])
async def test_a_get_that_waits_for_messages_it_may_not_have_does_not_fill_the_log(
    node: Node, why: str
) -> None:
    client = await connected(node.me.client)
    orderings = {"key_is_held": "key", "other_holds": "single_active"}
    await client.declare("q", ordering=orderings.get(why, "none"))
    keyed = columns.Publication([b"one", b"two"], keys=[b"k", b"k"])
    listed, raw = columns.pack_publication(keyed)
    correlation = client.next_correlation()
    client.send(Publish("q", 0, 0, 1, 2, listed), correlation, raw)
    await client.confirmed(correlation)
    if why == "paused":
        assert isinstance(await client.ask(QueueAction("q", "pause")), Ok)
    elif why == "released":
        got = await client.ask(Get("q", 2))
        assert isinstance(got, Got)
        await client.settle(got.consumer, 1, 2, verb=Verb.RELEASE)
    else:
        other = await connected(node.me.client)
        assert isinstance(await other.ask(Get("q", 1)), Got)
    proposals = leadership_of(node).proposals
    before = proposals.entries_total
    nothing = await client.ask(Get("q", 1, wait_ms=500))
    assert isinstance(nothing, Got)
    assert nothing.count == 0
    looks = 0 if why in ("paused", "key_is_held") else int(0.5 / limits.LOOK_SECONDS)
    assert proposals.entries_total - before <= looks + 2


async def test_every_column_of_a_publish_arrives(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q", dedup_window_ms=60_000)
    bodies = [b"one", b"two", b"three"]
    headers = [columns.encode_headers({"a": "1"}), b"", columns.encode_headers({"b": "2"})]
    listed, raw = columns.pack_publication(
        columns.Publication(
            bodies,
            keys=[b"k1", b"", b"k3"],
            headers=headers,
            priorities=[4, 4, 4],
            delays_ms=[0, 0, 100],
            ttls_ms=[60_000, 0, 60_000],
            dedup_ids=[b"d1", b"d2", b"d3"],
            numbers=[10, 20, 35],
        )
    )
    correlation = client.next_correlation()
    client.send(Publish("q", 0, 0, 10, 3, listed), correlation, raw)
    item = await client.confirmed(correlation)
    assert item[3:5] == (0, 3)
    await client.subscribe("q")
    tokens: list[tuple[bytes, bytes, bytes, int]] = []
    while len(tokens) < 3:
        frame = await client.next_frame(Deliver)
        message = frame.message
        assert isinstance(message, Deliver)
        layout = columns.lay_out(message.columns, frame.raw, message.count, columns.DELIVER_TAGS)
        none = [b""] * message.count
        numbers = [run[3] + at for run in message.runs for at in range(run[0])]
        tokens += zip(
            layout.bodies(),
            layout.blobs(columns.KEY_LENGTHS) or none,
            layout.blobs(columns.HEADER_LENGTHS) or none,
            numbers,
            strict=True,
        )
    assert tokens == list(zip(bodies, [b"k1", b"", b"k3"], headers, [10, 20, 35], strict=True))


async def test_a_refused_publish_refuses_those_behind_it(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q", max_length=2)
    correlations = [client.publish("q", n - 1, n, [b"x"]) for n in range(1, 5)]
    items = [await client.confirmed(one) for one in correlations]
    assert [item[4] for item in items] == [1, 1, 0, 0]
    assert [item[5] and item[5][0] for item in items] == [None, None, "queue_full", "gap"]  # type: ignore[index]  # an error item
    await client.close()


@pytest.mark.slow
async def test_a_list_of_many_queues_is_cut_at_its_limit(node: Node) -> None:
    client = await connected(node.me.client)
    for number in range(1500):
        client.send(Declare(f"queue-{number}-{'x' * 100}", {}), 1000 + number)
    await client.take(lambda frame: frame.correlation == 1000 + 1499)
    answer = await client.ask(QueueQuery(None, "list", 1500))
    assert isinstance(answer, Ok)
    assert len(answer.result) == 1500
    assert "spec" not in answer.result[0]
    few = await client.ask(QueueQuery(None, "list", 2))
    assert isinstance(few, Ok)
    assert few.result[0]["spec"]["ordering"] == "none"


async def test_confirms_of_one_turn_share_a_frame(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    last = 0
    for number in range(1, 101):
        last = client.publish("q", number - 1, number, [b"x"])
    await client.confirmed(last)
    frames = [frame for frame in client.frames if isinstance(frame.message, Confirms)]
    assert len(frames) < 50
    await client.close()


async def test_programs_that_end_without_a_farewell_leave_no_session_behind(node: Node) -> None:
    clients = [await connected(node.me.client) for _ in range(33)]
    machine = leadership_of(node)._machine
    assert machine.session_count() == 33
    for client in clients:
        await client.close()
    await eventually(lambda: machine.session_count() == 0)
    frame = await (
        await RawClient(clients[0].session, clients[0].incarnation).connect(node.me.client)
    ).hello(resume=True)
    assert isinstance(frame.message, Error)
    assert frame.message.code == "session_ended"


async def test_no_client_hears_that_its_session_is_gone_before_that_is_certain(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connected(node.me.client)
    await client.close()
    await eventually(lambda: leadership_of(node)._machine.session_count() == 0)

    async def resumed() -> object:
        again = await RawClient(client.session, client.incarnation).connect(node.me.client)
        return (await again.hello(resume=True)).message

    with monkeypatch.context() as patch:
        patch.setattr(raft_probe.running_raft(node), "led_at", lambda: 0.0)
        assert isinstance(await resumed(), Redirect), "another node may lead, and know the session"
    answer = await resumed()
    assert isinstance(answer, Error)
    assert answer.code == "session_ended"


async def test_a_publish_that_is_repeated_in_ten_seconds_is_stored_once(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    client.publish("q", 0, 1, [b"once"])
    await eventually(lambda: leadership_of(node)._machine.ready("q") == 1)
    await client.close()  # before it has read the confirm
    await passed(10.0)
    again = await RawClient(client.session, client.incarnation).connect(node.me.client)
    assert (await again.welcome(resume=True)).session_state == SESSION_RESUMED
    item = await again.confirmed(again.publish("q", 0, 1, [b"once"]))
    assert tuple(item[3:5]) == (1, 0), "a duplicate, and nothing stored"
    assert (await overview(again))["ready"] == 1
