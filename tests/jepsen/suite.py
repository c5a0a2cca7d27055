"""A suite of runs: every workload, every fault, alone, in pairs, with a sick minority; for a time.

Owns which plans a suite is made of and their order, and what is printed meanwhile. A quarter of the
runs is quiet but for one fault that lasts (V2). All is drawn from one seed.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.jepsen import namespaces, rooted
from tests.jepsen.checkers.sometimes import WANTED, sometimes
from tests.jepsen.run import Plan, Result, cluster_in, known_faults, period, run
from tests.jepsen.workloads import WORKLOADS

LASTING = (
    "kill",
    "pause",
    "partition",
    "partition_one_way",
    "slow_disk",
    "leader_unreached",
    "far",
)
"""Faults that a minority, or the links of all, can suffer for good while the others serve."""

FAULTS_PER_RUN = 3
FIVE_EACH = 5
"""Every fifth run has five nodes."""

SECURED_EACH = 3
"""Every third has TLS, also between nodes, and users; of soaks every other."""

CALM_EACH = 3
CALM_S = 5.0
"""Every third goes on for CALM_S seconds after healing."""

KEPT = ("nemesis", "leader")
"""Events of a good period that the report of a long soak shows; the file has all."""

GROWTH_MAX = 0.1
SOAK_SECONDS_MIN = 900.0
"""A shorter one has not filled the caches of a node."""


def plans(seed: int, seconds: float) -> Iterator[Plan]:
    """Plans without end: in each round every workload once, and over a few every fault."""
    rng = random.Random(f"suite {seed}")
    names = sorted(known_faults())
    deck: list[str] = []
    number = 0
    while True:
        for workload in rng.sample(sorted(WORKLOADS), len(WORKLOADS)):
            number += 1
            nodes = 5 if number % FIVE_EACH == 0 else 3
            secured = number % SECURED_EACH == 0 and shutil.which("openssl") is not None
            calm_s = CALM_S if number % CALM_EACH == 1 else 0.0
            if number % 4 == 0:
                lasting = rng.choice(LASTING)
                yield Plan(
                    workload, (), seed + number, seconds, lasting,
                    nodes=nodes, secured=secured, calm_s=calm_s,
                )  # fmt: skip
                continue
            while len(deck) < FAULTS_PER_RUN:
                deck += rng.sample(names, len(names))
            faults = tuple(sorted({deck.pop() for _ in range(FAULTS_PER_RUN)}))
            real = number % 2 == 1 and namespaces.why_not() is None
            yield Plan(
                workload, faults, seed + number, seconds,
                namespaces=real, nodes=nodes, secured=secured, calm_s=calm_s,
            )  # fmt: skip


class Suite:
    """Runs until the time is over; what they came to. `soak`: all on one cluster that lives on."""

    def __init__(
        self, folder: Path, seed: int, seconds: float, each: float, *, soak: bool = False
    ) -> None:
        self.folder = folder.absolute()
        self.seed = seed
        self.seconds = seconds
        self.soak = soak
        self.secured = soak and seed % 2 == 1 and shutil.which("openssl") is not None
        """Whether all of a soak's ports speak TLS."""
        self._each = each
        self._began = 0.0
        self._longest = 0.0
        self.results: list[Result] = []
        self.seen: Counter[str] = Counter()
        self.took = 0.0

    def run(self) -> bool:
        """Run all; whether nothing was wrong."""
        self._began = time.monotonic()
        if self.soak:
            asyncio.run(self._on_one_cluster())
        else:
            for plan in plans(self.seed, self._each):
                where = self.folder / f"{plan.workload}-{plan.seed}"
                if not self._note(asyncio.run(run(plan, where))):
                    break
        return all(result.good for result in self.results) and not self.grown

    async def _on_one_cluster(self) -> None:
        """Run periods one after the other; the first that fails ends it and keeps its cluster."""
        where = self.folder / f"soak-{self.seed}"
        shutil.rmtree(where, ignore_errors=True)
        disks, real = not rooted.why_not(), not namespaces.why_not()
        made = cluster_in(where, self.seed, disks=disks, namespaces=real, secured=self.secured)
        async with made as cluster:
            for drawn in plans(self.seed, self._each):
                plan = replace(drawn, nodes=3, namespaces=real, secured=self.secured)
                result = await period(plan, cluster, where / f"{plan.workload}-{plan.seed}")
                if not (self._note(result) and result.good):
                    break

    def _note(self, result: Result) -> bool:
        """Take a result; whether there is time for another run."""
        self.results.append(result)
        self.seen += sometimes(result.events)
        self.took = time.monotonic() - self._began
        self._longest = max(self._longest, result.seconds)
        print(f"{self.took:6.0f} s  {result.text()}", flush=True)
        if self.soak and result.good:
            result.events = [one for one in result.events if one["f"] in KEPT]
        return self.took + self._longest < self.seconds

    @property
    def unseen(self) -> list[str]:
        """States that should have been seen at least once, and were not (V5)."""
        return [name for name in WANTED if not self.seen[name]]

    @property
    def growth(self) -> float | None:
        """Growth of the nodes' memory from the first tenth of a soak to its end.

        As a part; the median of the last third against that of the first third. None where nothing
        was sampled, or it was too short to say.
        """
        samples = [sample for result in self.results for sample in result.memory]
        if not self.soak or self.took < SOAK_SECONDS_MIN or not samples:
            return None
        begin = samples[0][0] + 0.1 * self.took
        third = 0.3 * self.took
        first = [size for time, _, size in samples if begin < time < begin + third]
        last = [size for time, _, size in samples if time > samples[-1][0] - third]
        if not first or not last:
            return None
        return statistics.median(last) / statistics.median(first) - 1

    @property
    def grown(self) -> bool:
        """Whether memory was not flat."""
        return self.growth is not None and self.growth > GROWTH_MAX

    def growth_text(self) -> str:
        """The same in words."""
        if self.growth is None:
            return "too short to judge its growth"
        return f"{self.growth:+.1%} from the first third to the last (at most {GROWTH_MAX:.0%})"
