"""A small sample of `make locks`: two runs, on one cluster of processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.jepsen.held_locks import run, started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

LOCKS = (2.0,)

FAULT_S = 2.5
"""With the second behind it longer than an election and a lock of 2 s."""


def test_renewed_locks_survive_a_leader_that_is_paused_or_cut_off(tmp_path: Path) -> None:
    kinds = ("pause", "cut")

    async def one_of_each() -> dict[str, str | None]:
        async with started(tmp_path) as cluster:
            return {
                kind: (await run(cluster, kind, 0, locks=LOCKS, fault_s=FAULT_S))[0]
                for kind in kinds
            }

    assert asyncio.run(one_of_each()) == dict.fromkeys(kinds)
