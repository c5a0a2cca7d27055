"""The input of clients is handled in turns: a share for each, and other work in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from fifo.machine.contract import (
    RefusalCode,
    Refused,
    code_of,
    commands,
    from_list,
    replies,
)
from fifo.wire import Frame, columns, encode
from fifo.wire.fields import U63_MAX
from fifo.wire.frames import PREFIX
from fifo.wire.handshake import State
from fifo.wire.limits import DURATION_MS_MAX, LETTER_TEXT_BYTES_MAX, TEXT_BYTES_MAX
from fifo.wire.messages import (
    Cancel,
    Declare,
    Error,
    Message,
    Ok,
    Ping,
    Publish,
    QueueAction,
    QueueQuery,
    Renew,
    Renewed,
    Settle,
)
from fifo.words.bounds import SETTLE_MESSAGES_MAX
from fifo.words.handles import HANDLE_BYTES
from node.broker import cost, limits
from node.broker.broker import Broker
from node.broker.connections.connection import Connection
from node.broker.connections.input_turns import InputTurns
from node.broker.lock_clock import Renewal
from node.broker.proposals import Proposals
from node.broker.requests import publishing
from node.broker.stretches import Stretches
from tests.support import raft_probe
from tests.support.cluster import eventually, leadership_of, running
from tests.support.loop_turns import Spy
from tests.support.rawclient import RawClient, connected

PING = b"".join(encode(Ping(), 0))


class Socket:
    """A transport that notes whether it is read."""

    def __init__(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str) -> None:
        """No address."""

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Nothing is written."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Desk:
    """The owner of connections: hands them to the turns, and notes what they bring."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        stretches = Stretches(lambda: 0.0)
        self.turns = InputTurns(clock, stretches, lambda kind: kind.__name__)
        self.handled: list[Connection] = []
        self.hold_back_at: int | None = None

    def connect(self) -> tuple[Connection, Socket]:
        connection = Connection(self, lambda: 0.0, 1000)  # type: ignore[arg-type]  # a part of an owner
        socket = Socket()
        connection.connection_made(cast("asyncio.Transport", socket))
        connection.opening.state = State.OPEN
        return connection, socket

    def connected(self, connection: Connection) -> None:
        """Nothing to do."""

    def to_watch(self, connection: Connection) -> None:
        """Nothing to do."""

    def arrived(self, connection: Connection) -> None:
        self.turns.arrived(connection)

    def to_handle(self, connection: Connection) -> None:
        self.turns.queue(connection)

    def received(self, connection: Connection, frame: Frame) -> None:
        self.handled.append(connection)
        if self.hold_back_at == len(self.handled):
            connection.stop_reading("in_flight")


async def loop_turn() -> None:
    """Wait for one turn of the loop."""
    await asyncio.sleep(0)


async def test_one_client_gets_its_share_and_then_what_a_turn_has_room_for() -> None:
    desk = Desk()
    connection, socket = desk.connect()
    count = 3 * limits.TURN_ITEMS_MAX
    connection.data_received(PING * count)
    assert len(desk.handled) == limits.SHARE_ITEMS_MAX
    assert not socket.reading
    before = len(desk.handled)
    while len(desk.handled) < count:
        await loop_turn()
        assert 0 < len(desk.handled) - before <= limits.TURN_ITEMS_MAX
        before = len(desk.handled)
    await loop_turn()
    assert socket.reading, "it is read again once all is handled"
    assert connection.reading


async def test_clients_are_served_round_robin() -> None:
    desk = Desk()
    connections = [desk.connect()[0] for _ in range(5)]
    for connection in connections:
        connection.data_received(PING * 2000)
    while len(desk.handled) < 10_000:
        await loop_turn()
        counts = Counter(desk.handled)
        assert max(counts.values()) - min(counts[one] for one in connections) <= (
            2 * limits.SHARE_ITEMS_MAX
        )


async def test_a_client_with_one_request_waits_for_one_share_of_each_other() -> None:
    desk = Desk()
    greedy = [desk.connect()[0] for _ in range(20)]
    for connection in greedy:
        connection.data_received(PING * 5000)
    modest, _ = desk.connect()
    modest.data_received(PING)
    while modest not in desk.handled:
        await loop_turn()
    before = desk.handled[: desk.handled.index(modest)]
    assert max(Counter(before).values()) <= 2 * limits.SHARE_ITEMS_MAX


async def test_a_share_ends_when_its_time_is_over() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += limits.SHARE_SECONDS / 4
        return now

    desk = Desk(clock)
    connection, _ = desk.connect()
    connection.data_received(PING * 100)
    assert len(desk.handled) == 4


async def test_all_clients_of_one_turn_share_its_time() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += limits.SHARE_SECONDS
        return now

    desk = Desk(clock)
    for _ in range(100):
        desk.connect()[0].data_received(PING)
    assert len(desk.handled) <= limits.TURN_SECONDS / limits.SHARE_SECONDS + 1
    while len(desk.handled) < 100:
        before = len(desk.handled)
        await loop_turn()
        assert len(desk.handled) - before <= limits.TURN_SECONDS / limits.SHARE_SECONDS + 1


async def test_frames_behind_too_many_unanswered_requests_wait_undecoded() -> None:
    desk = Desk()
    connection, socket = desk.connect()
    desk.hold_back_at = 10
    connection.data_received(PING * 50)
    for _ in range(3):
        await loop_turn()
    assert len(desk.handled) == 10
    assert not socket.reading
    assert connection.held_bytes == 40 * len(PING)
    connection.start_reading("in_flight")
    assert len(desk.handled) == 10, "not in the middle of what has withdrawn the reason"
    await loop_turn()
    assert len(desk.handled) == 50
    assert socket.reading


async def test_bytes_that_come_while_a_client_waits_keep_their_order() -> None:
    desk = Desk()
    connection, _ = desk.connect()
    count = 2 * limits.TURN_ITEMS_MAX
    stream = PING * count
    connection.data_received(stream[:-7])
    connection.data_received(stream[-7:])
    while len(desk.handled) < count:
        await loop_turn()
    assert connection.opening.state is State.OPEN
    assert connection.held_bytes == 0


async def test_a_long_answer_counts_by_its_pieces_and_precedes_the_next_frame() -> None:
    desk = Desk()
    connection, _ = desk.connect()
    done: list[int] = []

    def pieces() -> Iterator[None]:
        for piece in range(3 * limits.TURN_ITEMS_MAX):
            done.append(piece)
            yield

    def received(connection: Connection, frame: Frame) -> None:
        desk.handled.append(connection)
        if len(desk.handled) == 1:
            connection.answer_in_pieces(frame, pieces())

    desk.received = received  # type: ignore[method-assign]  # another handler
    connection.data_received(PING * 2)
    assert len(done) < limits.SHARE_ITEMS_MAX
    before = len(done)
    while len(done) < 3 * limits.TURN_ITEMS_MAX:
        assert len(desk.handled) == 1
        await loop_turn()
        assert len(done) - before <= limits.TURN_ITEMS_MAX
        before = len(done)
    await loop_turn()
    assert len(desk.handled) == 2


# --- a node ---------------------------------------------------------------------------------------


def _frame(message: Message, correlation: int, raw: bytes = b"") -> bytes:
    return b"".join(encode(message, correlation, (raw,) if raw else ()))


def _unknown(correlation: int) -> bytes:
    header = b"\x92\xcd\x27\x0f\x01"
    return PREFIX.pack(len(header), 0) + header


def _lone() -> tuple[tuple[int, int], ...]:
    return tuple((token, token) for token in range(1, 200, 2))


BURSTS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "pings": (20_000, lambda number: _frame(Ping(), number)),
    "unknown types": (20_000, _unknown),
    "refused publishes": (
        10_000,
        lambda number: _frame(Publish("none", 0, 0, 1, 1, ((0, 4),)), number, bytes(4)),
    ),
    "renewals": (4_000, lambda number: _frame(Renew(((9, _lone()),)), number)),
    "settlements": (4_000, lambda number: _frame(Settle(9, 0, _lone()), number)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BURSTS)
async def test_a_burst_in_one_write_is_handled_in_turns_and_another_client_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        greedy, modest = await connected(node.me.client), await connected(node.me.client)
        turn = 0
        handled: Counter[int] = Counter()
        received, refuse = Broker.received, Connection.refuse

        def count_received(broker: Broker, connection: Connection, frame: Frame) -> None:
            handled[turn] += 1
            received(broker, connection, frame)

        def count_refused(connection: Connection, *what: object, **more: object) -> None:
            if kind == "unknown types":
                handled[turn] += 1
            refuse(connection, *what, **more)  # type: ignore[arg-type]  # passed on

        monkeypatch.setattr(Broker, "received", count_received)
        monkeypatch.setattr(Connection, "refuse", count_refused)
        loop = asyncio.get_running_loop()

        def tick() -> None:
            nonlocal turn
            turn += 1
            if not ended.is_set():
                loop.call_soon(tick)

        ended = asyncio.Event()
        tick()
        count, make = BURSTS[kind]
        greedy.send_bytes(b"".join([make(number) for number in range(1, count + 1)]))
        asked = 0
        while sum(handled.values()) < count:
            await modest.ask(Ping())
            asked += 1
        await eventually(lambda: sum(handled.values()) >= count + asked)
        ended.set()
        assert max(handled.values()) <= limits.TURN_ITEMS_MAX + 1
        assert asked >= 5, "answered while the burst was handled"
        assert node.leads


# --- long answers ---------------------------------------------------------------------------------


async def test_a_list_of_queues_is_made_in_pieces_while_other_clients_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHARE_ITEMS_MAX", 10)
    monkeypatch.setattr(limits, "TURN_ITEMS_MAX", 20)
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        greedy, modest = await connected(node.me.client), await connected(node.me.client)
        for number in range(300):
            greedy.send(Declare(f"q{number}", {}), 1000 + number)
        await greedy.take(lambda frame: frame.correlation == 1299)
        spy = Spy(monkeypatch, node.broker.host.machine, "queue_overview")
        greedy.send(QueueQuery(None, "list", 10_000), 7)
        greedy.send(QueueAction("q299", "delete"), 8)
        asked = 0
        while len(spy.arguments) < 300:
            await modest.ask(Ping())
            asked += 1
            assert asked < 3000, "the list goes on in every turn"
        spy.stop()
        answer = (await greedy.take(lambda frame: frame.correlation == 7)).message
        assert isinstance(answer, Ok), answer
        assert [one["name"] for one in answer.result] == [f"q{number}" for number in range(300)]
        assert max(spy.calls.values()) <= 2 * 20, "one budget before the loop looks, one after"
        assert asked >= 3


async def test_a_query_of_more_than_a_turn_has_time_for_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        await client.declare("q")
        for query in ("locks", "delayed", "consumers", "producers"):
            assert isinstance(await client.ask(QueueQuery("q", query, 1000)), Ok)
            answer = await client.ask(QueueQuery("q", query, 1001))
            assert isinstance(answer, Error)
            assert answer.code == "too_large"


async def _holding(client: RawClient, tokens: int) -> int:
    """A consumer that holds so many locks; its number."""
    await client.declare("q")
    await client.confirmed(client.publish("q", 0, 1, [b""] * tokens))
    consumer = (await client.subscribe("q", prefetch=tokens)).consumer
    held = 0
    while held < tokens:
        held += (await client.delivery())[0].count
    return consumer


async def test_a_renewal_of_many_lone_tokens_is_granted_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        consumer = await _holding(client, 2000)
        lone = tuple((token, token) for token in range(1, 2100, 2))
        spy = Spy(monkeypatch, leadership_of(node).locks, "renew")
        answer = await client.ask(Renew(((consumer, lone), (consumer + 9, ((1, 1),)))))
        spy.stop()
        assert isinstance(answer, Renewed), answer
        ((number, renewed, lost),) = answer.items
        assert number == consumer
        assert [(first, last) for first, last, _ in renewed] == list(lone[:1000])
        assert lost == ()
        pieces = [len(cast("tuple[object, ...]", ranges)) for _, _, ranges, _ in spy.arguments]
        assert sum(pieces) == 1000
        assert max(pieces) <= limits.RENEWED_IN_A_PIECE


async def test_a_renewal_in_pieces_ends_where_the_leader_may_grant_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        consumer = await _holding(client, 1000)
        leadership = leadership_of(node)
        renew = leadership.locks.renew

        def last_one(*values: Any) -> Renewal | None:
            raft = raft_probe.running_raft(node)
            monkeypatch.setattr(raft, "lease_until", lambda: 0.0)
            return renew(*values)

        monkeypatch.setattr(leadership.locks, "renew", last_one)
        lone = tuple((token, token) for token in range(1, 1000, 2))
        answer = await client.ask(Renew(((consumer, lone),)))
        assert isinstance(answer, Error), answer
        assert (answer.code, answer.retryable) == ("not_now", True)


async def test_a_settlement_that_the_wire_has_checked_needs_no_second_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the wire accepts in one, and the node makes of it, is a command of the log."""
    text = "é" * (LETTER_TEXT_BYTES_MAX // 2)
    tops = [
        Settle(
            *(U63_MAX, verb, ((1, 1), (3, U63_MAX)), U63_MAX, DURATION_MS_MAX),
            reason=text,
            description=text,
            exception_type="é" * (TEXT_BYTES_MAX // 2),
            exception_text=text,
            stack=text,
            automatic=True,
            handles=(bytes(HANDLE_BYTES),) * SETTLE_MESSAGES_MAX,
        )
        for verb in range(4)
    ]
    proposed: list[list[Any]] = []
    propose = Proposals.propose

    def noted(proposals: Proposals, build: Callable[[int], Any], *rest: Any, **more: Any) -> None:
        proposed.append(list(build(1000)))
        propose(proposals, build, *rest, **more)

    monkeypatch.setattr(Proposals, "propose", noted)
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        proposed.clear()
        for message in (*tops, Cancel(U63_MAX, ((1, 1), (3, U63_MAX)))):
            await client.ask(message)
    kinds = [type(from_list(plain)) for plain in proposed]
    assert kinds.count(commands.Settle) == 4
    assert kinds.count(commands.Cancel) == 1


# --- publishes of many messages -------------------------------------------------------------------


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Messages of every publish that the node proposes."""
    counts: list[int] = []
    propose = Proposals.propose

    def noted(proposals: Proposals, build: Callable[[int], Any], *rest: Any, **more: Any) -> None:
        plain = build(0)
        if plain[0] == code_of(commands.Publish):
            counts.append(plain[6])
        propose(proposals, build, *rest, **more)

    monkeypatch.setattr(Proposals, "propose", noted)
    return counts


async def _published(
    client: RawClient, publication: columns.Publication, number: int = 1, previous: int = 0
) -> tuple[Any, ...]:
    listed, raw = columns.pack_publication(publication)
    correlation = client.next_correlation()
    count = len(publication.bodies)
    client.send(Publish("q", 0, previous, number, count, listed), correlation, raw)
    return await client.confirmed(correlation)


def _alternating(count: int) -> list[int]:
    return [place % 10 for place in range(count)]


async def test_messages_that_are_stored_one_by_one_are_applied_in_several_commands(
    tmp_path: Path, applied: list[int]
) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        await client.declare("q")
        bodies = [str(place).encode() for place in range(2000)]
        item = await _published(client, columns.Publication(bodies, priorities=_alternating(2000)))
        assert item[3:] == (0, 2000, None)
        assert sum(applied) == 2000
        assert max(applied) * cost.STORED_ALONE <= limits.PUBLISH_MICROSECONDS_MAX
        item = await _published(client, columns.Publication([b""] * 2000), 2001, 2000)
        assert item[3:] == (0, 2000, None)
        assert applied[-1] == 2000, "alike, and stored as one"
        item = await _published(
            client, columns.Publication([b""] * 2000, delays_ms=[60_000] * 2000), 4001, 4000
        )
        assert item[3:] == (0, 2000, None)
        assert applied[-2:] == [1000, 1000], "each waits for a time of its own"
        await client.subscribe("q", prefetch=2000)
        got: list[bytes] = []
        while len(got) < 2000:
            got += (await client.delivery())[1]
        assert got[:200] == [body for body in bodies if body.endswith(b"9")]


def test_the_first_refused_part_ends_a_publish() -> None:
    full = Refused(RefusalCode.QUEUE_FULL, "full")
    gap = Refused(RefusalCode.GAP, "gap")
    found = [
        replies.Published(7, 3, 5, 5, None),
        replies.Published(7, 3, 4, 0, full, (replies.Repeat(2, 1, 3, 9),)),
        replies.Published(7, 3, 0, 0, gap),
    ]
    repeat = replies.Repeat(12, 1, 3, 9)
    assert publishing.joined(found, 10) == replies.Published(7, 3, 9, 5, full, (repeat,))
    assert publishing.joined([found[0], gap, found[2]], 10) == replies.Published(7, 3, 5, 5, gap)
    assert publishing.joined([gap, found[2]], 10) == gap


async def test_a_publish_in_several_commands_ends_at_its_first_refused_message(
    tmp_path: Path, applied: list[int]
) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        await client.declare("q", max_length=700)
        publication = columns.Publication([b""] * 2000, priorities=_alternating(2000))
        item = await _published(client, publication)
        assert item[3:5] == (0, 700)
        assert item[5][0] == "queue_full"
        assert len(applied) > 3
        assert node.broker.host.machine.ready("q") == 700


async def test_repeats_and_chosen_numbers_of_a_publish_in_several_commands_keep_their_places(
    tmp_path: Path, applied: list[int]
) -> None:
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        await client.declare("q", dedup_window_ms=60_000)
        await _published(client, columns.Publication([b""], dedup_ids=[b"901"]))
        publication = columns.Publication(
            [b""] * 1000,
            dedup_ids=[str(place).encode() for place in range(1000)],
            numbers=[2 + 2 * place for place in range(1000)],
        )
        item = await _published(client, publication, 2, 1)
        assert len(applied) > 2
        assert item[3:6] == (0, 1000, None)
        ((place, count, _, number),) = item[6]
        assert (place, count, number) == (901, 1, 1)
        again = await _published(client, publication, 2, 1)
        assert again[3:6] == (1000, 0, None)


@pytest.mark.parametrize("sound", [True, False])
async def test_many_headers_are_checked_in_pieces_before_any_message_is_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: list[int], sound: bool
) -> None:
    monkeypatch.setattr(limits, "HEADERS_AT_ONCE_BYTES", 100)
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        await client.declare("q")
        headers = [columns.encode_headers({"name": str(place)}) for place in range(100)]
        if not sound:
            headers[-1] = b"\xff"
        listed, raw = columns.pack_publication(columns.Publication([b"x"] * 100, headers=headers))
        spy = Spy(monkeypatch, Connection, "_answer_piece")
        client.send(Publish("q", 0, 0, 1, 100, listed), 7, raw)
        behind = client.publish("q", 100, 101, [b"behind"])
        item = await client.confirmed(behind)
        spy.stop()
        if sound:
            assert len(spy.arguments) >= 100 * len(headers[0]) // 110 - 1
            assert item[3:] == (0, 1, None)
            assert applied == [100, 1]
        else:
            error: Any = item[5]
            assert error[0] == "gap"
            assert applied == [1]
