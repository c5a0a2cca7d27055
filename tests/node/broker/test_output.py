"""Output that waits for a peer: in order, in few writes, and as handles where it may be large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import cast

import pytest

from fifo.wire import Buffer
from node.broker import limits
from node.broker.connections.connection import Connection
from node.broker.connections.output import Output


class Socket:
    """A transport that takes what a test allows."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.output: Output | None = None
        self.takes = 10**9

    def set_write_buffer_limits(self, high: int) -> None:
        """Ask for a notification as soon as it is full."""
        assert high == 0

    def write(self, data: Buffer) -> None:
        """Write a single buffer."""
        self.writelines([data])

    def writelines(self, buffers: Sequence[Buffer]) -> None:
        """Several in one write."""
        self.writes.append(b"".join(buffers))
        if sum(map(len, self.writes)) >= self.takes:
            assert self.output is not None
            self.output.blocked = True


class Made:
    """A delivery, which may need entries that are not at hand."""

    def __init__(self, make: Callable[[], list[Buffer]] = list, needs: Sequence[int] = ()) -> None:
        self._make = make
        self._needs = needs
        self.at_hand = not needs

    @property
    def waits(self) -> bool:
        return not self.at_hand

    def make(self) -> list[Buffer]:
        return self._make() if self.at_hand else []

    def needs(self) -> Iterable[Sequence[int]]:
        return [self._needs] if self._needs else []


@pytest.fixture
def socket() -> Socket:
    return Socket()


@pytest.fixture
def output(socket: Socket) -> Output:
    made = Output(cast("None", socket), 0.0)  # type: ignore[arg-type]  # a transport of the test
    socket.output = made
    return made


def test_frames_of_a_turn_leave_in_one_write(socket: Socket, output: Output) -> None:
    output.add([b"one", b"two"])
    output.add_deferred(Made(lambda: [b"three"]))
    output.add([b"four"])
    output.flush(1.0)
    assert socket.writes == [b"onetwothreefour"]
    assert (not output.items, output.waiting_bytes) == (True, 0)


def test_a_delivery_is_made_only_when_the_socket_takes_it(socket: Socket, output: Output) -> None:
    made: list[int] = []

    def delivery(number: int) -> list[Buffer]:
        made.append(number)
        return [bytes(limits.WRITE_BYTES)]

    for number in range(100):
        output.add_deferred(Made(partial(delivery, number)))
    socket.takes = 1
    output.flush(1.0)
    assert made == [0]
    assert output.waiting_bytes == 0
    socket.takes = 10**9
    output.blocked = False
    output.flush(2.0)
    assert made == list(range(100))
    assert len(socket.writes) == 100, "no write is larger than it needs to be"


def test_too_much_waiting_is_over(output: Output) -> None:
    output.blocked = True
    output.add([bytes(limits.OUTPUT_BYTES_MAX)])
    assert not output.over
    output.add([b"x"])
    assert output.over
    output.clear()
    assert not output.over


def test_an_empty_frame_is_left_out(socket: Socket, output: Output) -> None:
    output.add_deferred(Made())
    output.flush(1.0)
    assert socket.writes == []


def test_nothing_overtakes_a_delivery_that_waits_for_the_disk(
    socket: Socket, output: Output
) -> None:
    delivery = Made(lambda: [b"delivery"], needs=[7, 8])
    output.add([b"before "])
    output.add_deferred(delivery)
    output.add([b" receipt"])
    output.flush(1.0)
    assert socket.writes == [b"before "]
    assert (output.stands, not output.items, output.moved_at) == (True, False, 1.0)
    assert [list(group) for group in output.needs()] == [[7, 8]]
    output.add_first([b"heartbeat"])
    output.flush(2.0)
    assert socket.writes == [b"before ", b"heartbeat"]
    output.flush(3.0)
    assert (output.stands, output.moved_at) == (True, 2.0), "nothing was sent"
    delivery.at_hand = True
    output.flush(4.0)
    assert socket.writes[2:] == [b"delivery receipt"]
    assert (output.stands, not output.items, output.waiting_bytes) == (False, True, 0)


def test_no_answer_is_sent_for_a_delivery_that_could_not_be_read_in_time() -> None:
    """The answer says how many messages came."""
    for last, sent in ((True, b"farewell"), (False, b"")):
        socket = Socket()
        output = Output(cast("None", socket), 0.0)  # type: ignore[arg-type]  # of the test
        output.add_deferred(Made(lambda: [b"delivery"], needs=[7]))
        output.add([b"answer"])
        output.add_deferred(Made(lambda: [b"another"]))
        output.add([b"farewell"])
        output.flush(1.0)
        assert output.stands
        output.end_before_deferred(last=last)
        output.flush(1.0)
        assert b"".join(socket.writes) == sent
        assert (output.stands, not output.items, output.waiting_bytes) == (False, True, 0)


class Owner:
    """The owner of a connection, as far as its output goes."""

    def __init__(self) -> None:
        self.flushes = 0

    def connected(self, connection: Connection) -> None:
        """Nothing to do."""

    def to_flush(self, connection: Connection) -> None:
        self.flushes += 1

    def to_watch(self, connection: Connection) -> None:
        """Nothing to do."""


class ClientSocket(Socket):
    """The same, of a connection."""

    def get_extra_info(self, name: str) -> None:
        """No address."""

    def set_write_buffer_limits(self, high: int, low: int = 0) -> None:
        """As a connection sets them."""


def test_confirms_on_their_way_to_the_socket_ask_for_no_other_flush() -> None:
    owner, socket = Owner(), ClientSocket()
    connection = Connection(owner, lambda: 0.0, 1000)  # type: ignore[arg-type]  # a part of an owner
    connection.connection_made(cast("None", socket))  # type: ignore[arg-type]  # one of the test
    for number in range(1, 4):
        connection.confirm(number, (1, 1, 0, 1, None))
    assert owner.flushes == 1
    connection.flush()
    assert (owner.flushes, len(socket.writes)) == (1, 1)
    connection.confirm(4, (1, 1, 0, 1, None))
    assert owner.flushes == 2
