"""The virtual clock: a program that waits for nothing is no program that has much to do."""

from __future__ import annotations

import asyncio

import pytest

from node.testing import clockwork
from node.testing.clockwork import Deadlock, VirtualLoop

CALLBACKS = 2_000


async def _naps(seconds: float) -> None:
    for _ in range(CALLBACKS):
        await asyncio.sleep(seconds)


@pytest.mark.parametrize(("seconds", "ends"), [(0.0, False), (1e-5, True), (1e-2, True)])
def test_only_a_clock_that_stands_still_is_a_deadlock(
    seconds: float, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clockwork, "SPIN_MAX", CALLBACKS // 4)
    loop = VirtualLoop()
    try:
        if ends:
            loop.run_until_complete(_naps(seconds))
        else:
            with pytest.raises(Deadlock, match="time stands still"):
                loop.run_until_complete(_naps(seconds))
    finally:
        loop.finish()
