"""The driver's side of a reservation, against durable consumers that give less than asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import fifo
from fifo.client import Opened
from fifo.spark import limits
from fifo.spark.holding import Holder
from fifo.spark.options import Settings
from fifo.spark.reservation import Reservation, behind, place_of, split

if TYPE_CHECKING:
    from fifo.blocking import BlockingClient

STEP = 2_500


class Durable:
    """Holds what is ready, at most a step at a time."""

    def __init__(self, ready: list[int], number: int = 1) -> None:
        """`ready`: the messages of the queue, which several may share."""
        self.ready = ready
        self.number = number
        self.next_token = 1
        self.asked = 0
        self.acked = 0
        self.renewals = 0
        self.lost: tuple[tuple[int, int], ...] = ()

    @property
    def opened(self) -> Opened:
        return Opened(self.number, 1)

    def open(self) -> tuple[tuple[int, int], ...]:
        return ()

    def renew(self) -> None:
        self.renewals += 1

    def ack(self, upto: int) -> tuple[()]:
        if not self.next_token:
            raise fifo.LockLost("there is no durable consumer of this name")
        self.acked = upto
        return ()

    def hold(self, count: int, max_bytes: int | None, runs: bool) -> fifo.Hold:
        self.asked += 1
        given = min(count, STEP, self.ready[0])
        tokens = range(self.next_token, self.next_token + given)
        self.ready[0] -= given
        self.next_token = tokens.stop
        return fifo.Hold(tokens, 0)


SETTINGS = Settings("fifo://nowhere", "q", reservation="r")


def holder(durable: Durable) -> Holder:
    client = SimpleNamespace(durable=lambda *_, **__: durable)
    return Holder(cast("BlockingClient", client), SETTINGS, "r")


class Client:
    """Opens durable consumers by name; asked to find one, it knows those that were opened."""

    def __init__(self, ready: int) -> None:
        self.ready = [ready]
        self.named: dict[str, Durable] = {}

    def durable(self, queue: str, name: str, **given: object) -> Durable:
        if "opened" in given and name not in self.named:
            nothing = Durable([0])
            nothing.next_token = 0
            return nothing
        return self.named.setdefault(name, Durable(self.ready, len(self.named) + 1))

    def reservation(self, most: int) -> Reservation:
        return Reservation(cast("BlockingClient", self), SETTINGS, most)


def test_reserving_goes_on_until_the_count_is_reached() -> None:
    durable = Durable([30_000])
    assert holder(durable).take(20_000) == (20_000, None)
    assert durable.asked == 20_000 // STEP


def test_reserving_ends_at_an_empty_answer() -> None:
    held = holder(Durable([2 * STEP + 1]))
    assert held.take(20_000) == (2 * STEP + 1, None)
    assert (held.last, held.held(0, 20_000)[-1]) == (2 * STEP + 1, (2 * STEP + 1, 2 * STEP + 1))


def test_a_batch_is_not_bounded_by_one_consumer() -> None:
    """Its consumers are filled one after the other, in order, and acked each up to its token."""
    most = limits.HELD_MAX
    client = Client(ready=3 * most)
    held = client.reservation(2 * most + 10)
    assert list(client.named) == ["r", "r/2", "r/3"]
    assert held.take(2 * most + 10) == 2 * most + 10
    assert (held.begin, held.last) == ((0, 0, 0), (most, most, 10))
    places = held.held((), held.last)
    assert places == tuple(sorted(places))
    assert [sum(last - first + 1 for first, last in part) for part in split(places, 2)] == [
        most + 5,
        most + 5,
    ]
    assert behind((), places) == held.last
    assert behind((5,), ((place_of(2, 3), place_of(2, 8)),)) == (5, 0, 8)
    assert held.ack((most, 7)) == 0
    assert [one.acked for one in client.named.values()] == [most, 7, 0]
    assert held.begin == (most, 7, 0)
    assert client.reservation(10).last == (most, most, 10), "also those that it does not need"


def test_a_reservation_without_messages_is_used_too() -> None:
    """Else the cluster would forget it after seven days, under a query that waits."""
    client = Client(ready=0)
    held = client.reservation(10)
    assert (held.take(10), client.named["r"].renewals) == (0, 0)
    held.renew()
    assert client.named["r"].renewals == 1
