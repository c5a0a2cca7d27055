"""Faults that go on while a test runs: one after another, each healed before the next.

Owns their order, which a seed decides, and their end: when the test is over everything runs again.
Must not know what a test looks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

import pytest

if TYPE_CHECKING:
    from fifo.testing import Cluster


class Fault(Protocol):
    """Begins a fault; returns what ends it, or None where it cannot be now."""

    def __call__(self, cluster: Cluster) -> Ending | None: ...


class Ending(Protocol):
    """Ends a fault."""

    def __call__(self) -> object: ...


def _kill_leader(cluster: Cluster) -> Ending | None:
    if cluster.leader is None:
        return None
    name = cluster.kill_leader()
    return lambda: cluster.start(name)


def _cut_leader(cluster: Cluster) -> Ending | None:
    if cluster.leader is None:
        return None
    cluster.cut(cluster.leader)
    return cluster.heal


def _cut_clients(cluster: Cluster) -> Ending | None:
    cluster.cut_clients()
    return cluster.heal


FAULTS: Final[dict[str, Fault]] = {
    "kill_leader": _kill_leader,
    "cut_leader": _cut_leader,
    "cut_clients": _cut_clients,
}


class Faults:
    """Every `every` seconds of the cluster one of the faults, for `lasting` seconds."""

    def __init__(
        self,
        cluster: Cluster,
        names: Sequence[str],
        *,
        every: float,
        lasting: float,
        seed: int,
    ) -> None:
        unknown = [name for name in names if name not in FAULTS]
        if unknown or not names:
            what = f"knows no fault {unknown[0]!r}" if unknown else "names no fault"
            raise pytest.UsageError(
                f"pytest.mark.fifo_faults {what}; there are: {', '.join(FAULTS)}"
            )
        for name, value in (("every", every), ("lasting", lasting)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise pytest.UsageError(
                    f"pytest.mark.fifo_faults: {name} must be seconds, not {value!r:.40}"
                )
        if not 0 < lasting < every:
            raise pytest.UsageError(
                f"pytest.mark.fifo_faults: lasting={lasting:g} must be above 0 and below"
                f" every={every:g}: a fault ends before the next one begins"
            )
        self._cluster = cluster
        self._names = names
        self._pause = every - lasting
        self._lasting = lasting
        self._chance = random.Random(seed)
        self._ending: Ending | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Faults:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None, "entered before"
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._end()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            self._ending = FAULTS[self._chance.choice(self._names)](self._cluster)
            await asyncio.sleep(self._lasting)
            self._end()

    def _end(self) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            ending()
