"""Settlements as a demo consumer records them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import fifo
from bench.demo.consumer import settle_by_fate


class Settled:
    """A message whose settlements are answered with one status."""

    failures = 0

    def __init__(self, status: str) -> None:
        self.status = status

    async def nack(self, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(status=self.status)

    async def terminate(self, *_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(status=self.status)


@pytest.mark.parametrize(("row", "wanted"), [(100, "nacked"), (10_000, "terminated")])
async def test_an_answer_lost_with_the_leader_still_counts_as_carried_out(
    row: int, wanted: str
) -> None:
    for status in (fifo.Status.OK, fifo.Status.ALREADY_SETTLED):
        assert await settle_by_fate(cast("fifo.Message", Settled(status)), row) == wanted


async def test_a_lost_lock_is_recorded_as_such() -> None:
    message = cast("fifo.Message", Settled(fifo.Status.LOCK_LOST))
    assert await settle_by_fate(message, 100) == "lock_lost"
