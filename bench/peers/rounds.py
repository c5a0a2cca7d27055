"""Rounds in turn: every system once per round, started and ended within it.

Owns the loads, the order (so that a noisy minute of the machine falls on all), and what happens to
a system that fails: it is left out of what comes. What the figures add up to is `figures`'.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bench.loopback import ClusterFailed, check_running, ended, until
from bench.peers.figures import figures_of
from bench.peers.meeting import Meeting
from bench.peers.servers import Running, System
from bench.peers.worker import CONSUMER, PACER, PUBLISHER, SURVIVOR, Job
from bench.processes import Child, Household

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.peers.figures import Measured

READY_LIMIT_S = 90.0
"""Time that workers may take to start, connect and have a queue."""

GRACE_S = 90.0
"""Time that a worker may take beyond its end: the answer to its last call, or its patience with a
system whose leader was killed (`worker.PAUSE_LIMIT_S`)."""

KILL_AFTER_S = 1.0
"""Seconds of confirms one by one before the leader is killed."""

LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """Load of every system, on a queue of its own. `kills`: the leader, in the middle; `rate`: that
    of a pacer."""

    name: str
    roles: tuple[str, ...]
    window: int
    kills: bool = False
    rate: int = 0


LOADS = (
    Load("1 publisher", (PUBLISHER,), 1000),
    Load("1 publisher, 1 consumer", (PUBLISHER, CONSUMER), 1000),
    Load("4 publishers, 4 consumers", (*[PUBLISHER] * 4, *[CONSUMER] * 4), 1000),
    Load("1,000 a second, 1 consumer", (PACER, CONSUMER), 1000, rate=1_000),
    Load("one confirm at a time", (PUBLISHER,), 1),
    Load("the same, leader killed", (SURVIVOR,), 1, kills=True),
)
"""The one that kills is the last: nothing is started again."""


class Rounds:
    """A series of rounds."""

    def __init__(
        self,
        folder: Path,
        systems: Sequence[System],
        *,
        seconds: float,
        warm_up_s: float,
        size: int,
        say: Callable[[str], None],
        household: Household,
    ) -> None:
        self._folder = folder
        self._systems = systems
        self._seconds = seconds
        self._warm_up_s = warm_up_s
        self._size = size
        self._say = say
        self._household = household
        self.measured: Measured = {}
        self.durability: dict[str, str] = {}
        """By system, as its nodes reported it."""
        self.failed: dict[str, str] = {}
        """Why, by system."""

    async def run(self, rounds: int, loads: Sequence[Load] = LOADS) -> None:
        """Every system once per round; who goes first changes. One that fails is left out then."""
        for number in range(rounds):
            turn = number % max(1, len(self._systems))
            for system in (*self._systems[turn:], *self._systems[:turn]):
                if system.name not in self.failed:
                    self._say(f"round {number + 1} of {rounds}: {system.name}")
                    await self._one(system, number, loads)

    async def _one(self, system: System, number: int, loads: Sequence[Load]) -> None:
        place = self._folder / f"r{number}-{system.name.replace(', ', '-').replace(' ', '-')}"
        try:
            running = await system.start(self._household, place)
            self.durability[system.name] = running.durability
            for index, load in enumerate(loads):
                figures = await self._load(system, running, load, f"{place.name}-{index}")
                for figure, value in figures.items():
                    self.measured.setdefault((load.name, figure, system.name), []).append(value)
        except ClusterFailed as error:
            self.failed[system.name] = str(error)
            self._say(f"{system.name} failed, and is left out from now on: {error}")
        finally:
            await asyncio.shield(asyncio.to_thread(self._household.end, lambda: True))
            await asyncio.to_thread(_forget, place)

    async def _load(
        self, system: System, running: Running, load: Load, name: str
    ) -> dict[str, float]:
        meeting = Meeting(self._folder / name)
        meeting.call()
        queue = f"peers-{name.rpartition('-')[2]}"
        shared = load.roles.count(PUBLISHER) or 1
        workers = []
        for place, role in enumerate(load.roles):
            window = max(1, load.window // shared) if role == PUBLISHER else load.window
            job = Job(
                name=f"{name}-{place}",
                system=system.name,
                url=running.url,
                queue=queue,
                role=role,
                size=self._size,
                window=window,
                meeting=str(self._folder / name),
                rate=load.rate,
            )
            workers.append(self._start(job))
        await self._all_here(meeting, [child for child, _ in workers])
        meeting.begin(self._warm_up_s, self._seconds)
        if load.kills:
            await asyncio.sleep(self._warm_up_s + KILL_AFTER_S)
            await running.kill_leader(queue)
            meeting.killed()
        limit_s = self._warm_up_s + self._seconds + GRACE_S
        results = [await _result(*worker, limit_s) for worker in workers]
        return figures_of(list(zip(load.roles, results, strict=True)), self._seconds)

    def _start(self, job: Job) -> tuple[Child, Path]:
        output = self._folder / f"{job.name}.json"
        command = (sys.executable, "-m", "bench.peers.worker", json.dumps(asdict(job)))
        return self._household.start(job.name, *command, stdout=output), output

    async def _all_here(self, meeting: Meeting, workers: Sequence[Child]) -> None:
        """Wait until all are connected."""

        async def connected() -> bool:
            check_running(workers)
            return meeting.arrived() == len(workers)

        await until(connected, READY_LIMIT_S, "its clients did not connect", LOOK_S)


async def _result(child: Child, output: Path, limit_s: float) -> dict[str, Any]:
    """Figures of a worker, once it has ended."""
    await ended(child, limit_s)
    return await asyncio.to_thread(_parsed, output)


def _parsed(output: Path) -> dict[str, Any]:
    return dict(json.loads(output.read_text()))


def _forget(place: Path) -> None:
    """Gone from the disk, and nothing of it still to be written there when the next one starts."""
    shutil.rmtree(place, ignore_errors=True)
    os.sync()
