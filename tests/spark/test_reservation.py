"""The driver's side of a reservation, against a durable consumer that gives less than asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import fifo
from fifo.spark.options import Settings
from fifo.spark.reservation import Reservation

if TYPE_CHECKING:
    from fifo.blocking import BlockingClient

STEP = 2_500


class Durable:
    """Holds what is ready, at most a step at a time."""

    def __init__(self, ready: int) -> None:
        self.ready = ready
        self.next_token = 1
        self.asked = 0
        self.lost: tuple[tuple[int, int], ...] = ()

    def open(self) -> tuple[tuple[int, int], ...]:
        return ()

    def hold(self, count: int, max_bytes: int | None) -> fifo.Hold:
        self.asked += 1
        given = min(count, STEP, self.ready)
        tokens = range(self.next_token, self.next_token + given)
        self.ready -= given
        self.next_token = tokens.stop
        return fifo.Hold(tokens, 0)


def reservation(durable: Durable) -> Reservation:
    client = SimpleNamespace(durable=lambda *_, **__: durable)
    settings = Settings("fifo://nowhere", "q", reservation="r")
    return Reservation(cast("BlockingClient", client), settings)


def test_reserving_goes_on_until_the_count_is_reached() -> None:
    durable = Durable(ready=30_000)
    assert reservation(durable).take(20_000) == 20_000
    assert durable.asked == 20_000 // STEP


def test_reserving_ends_at_an_empty_answer() -> None:
    durable = Durable(ready=2 * STEP + 1)
    held = reservation(durable)
    assert held.take(20_000) == 2 * STEP + 1
    assert (held.last, held.held(0, 20_000)[-1]) == (2 * STEP + 1, (2 * STEP + 1, 2 * STEP + 1))
