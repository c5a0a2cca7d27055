"""`python -m bench.growth`: what a message costs beside more and more of everything.

Each curve has a cluster of three nodes of its own, whose state grows from size to size. At each
size the same load runs beside it, and its price is the CPU time of the nodes' processes beyond what
they take while idle: it holds on a busy machine too, but for figures in plain ms. Asserts nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench.cluster import FIFO, BenchCluster
from bench.growth import pictures, report
from bench.growth.curves import (
    BATCHES,
    CALM,
    CURVES,
    HASHED,
    IDLE,
    LASTED,
    LONE,
    LONGEST,
    MEMORY,
    MEMORY_FROM,
    SLICE,
    SNAPSHOT_BYTES,
    STALL,
    Curve,
)
from bench.growth.digesting import MODULE, found_in
from bench.growth.probe import Probe, steady, until_snapshot
from bench.hardware import describe, machine
from bench.loopback import ClusterFailed
from bench.measuring import FAILURES, measured
from bench.nodes import Nodes

if TYPE_CHECKING:
    from bench.growth.states import State
    from bench.processes import Household

WARM_UPS = 2
"""Loads before the first size: a process that has just started is slower, and smaller."""


@dataclass(frozen=True, slots=True)
class GrowthSizes:
    """Amounts of one size of the benchmark."""

    up_to: int
    messages: int
    repeats: int
    idle_s: float


class Measuring:
    """A curve on a cluster of its own."""

    def __init__(
        self,
        curve: Curve,
        state: State,
        cluster: BenchCluster,
        sizes: GrowthSizes,
        found: report.Found,
    ) -> None:
        self._curve = curve
        self._state = state
        self._nodes = Nodes(cluster)
        self._configuration = cluster.file
        self._sizes = sizes
        self._found = found
        self._before_mib = 0.0

    async def run(self) -> None:
        """Warm up, then each size."""
        curve, state = self._curve, self._state
        sizes = curve.upto(self._sizes.up_to)
        await state.grow(sizes[0])
        for _ in range(WARM_UPS):
            await Probe(state, self._nodes, 0.0, self._sizes.messages).in_batches()
        self._before_mib = self._nodes.memory_mib()[0]
        for size in sizes:
            _say(f"{curve.name}: {size:,} {curve.axis}")
            await state.grow(size)
            if curve.snapshot:
                self._note(STALL, size, await until_snapshot(state, self._nodes))
            elif curve.digest:
                for _ in range(self._sizes.repeats):
                    await self._digest(size)
                continue
            else:
                await self._costs(size)
            longest_ms = await self._nodes.longest_ms()
            kind = max(longest_ms, key=longest_ms.__getitem__, default="")
            self._note(LONGEST, size, longest_ms.get(kind, 0.0), kind)

    async def _costs(self, size: int) -> None:
        more = size - self._curve.sizes[0]
        if MEMORY in self._curve.figures and more >= MEMORY_FROM:
            grown_mib = self._nodes.memory_mib()[0] - self._before_mib
            self._note(MEMORY, size, grown_mib * (1 << 20) / more)
        idle = sum(await self._nodes.busy(self._sizes.idle_s))
        if IDLE in self._curve.figures:
            self._note(IDLE, size, 1_000 * idle)
        probe = Probe(self._state, self._nodes, idle, self._sizes.messages)
        for _ in range(self._sizes.repeats):
            self._note(BATCHES, size, await probe.in_batches())
            self._note(LONE, size, await probe.lone())

    async def _digest(self, size: int) -> None:
        """Have the leader hash its state beside a steady load, whose confirms are looked at for as
        long as idle nodes are, before, and until the digest is there."""
        end = time.monotonic() + self._sizes.idle_s
        self._note(CALM, size, await steady(self._state, lambda: time.monotonic() > end))
        before = len(found_in(self._configuration))
        self._nodes.signal_leader(signal.SIGUSR2)
        stall_ms = await steady(self._state, lambda: len(found_in(self._configuration)) > before)
        taken = found_in(self._configuration)[-1]
        if not taken["made"]:
            raise ClusterFailed(f"a digest of {size:,} messages was given up")
        self._note(STALL, size, stall_ms)
        self._note(HASHED, size, 1_000 * taken["cpu_s"])
        self._note(SLICE, size, 1_000 * taken["longest_s"])
        self._note(LASTED, size, taken["lasted_s"])

    def _note(self, figure: str, size: int, value: float, more: str = "") -> None:
        """Keep a value, and print it at once, with a word more: the rest may take long."""
        self._found.setdefault((self._curve.name, figure, size), []).append(value)
        _say(f"  {figure}: {value:,.1f} {more}".rstrip())


async def measure(
    household: Household, folder: Path, curves: list[Curve], sizes: GrowthSizes, found: report.Found
) -> int:
    """Each curve on a cluster of its own, and how many of them failed; what was found stays."""
    failed = 0
    for curve in curves:
        place = folder / curve.name
        cluster = BenchCluster(
            household,
            place,
            SNAPSHOT_BYTES if curve.snapshot else None,
            (sys.executable, "-m", MODULE) if curve.digest else FIFO,
        )
        await cluster.start()
        try:
            async with contextlib.AsyncExitStack() as stack:
                state = curve.state(cluster.url, stack)
                await state.open()
                await Measuring(curve, state, cluster, sizes, found).run()
        except FAILURES as error:
            _say(f"{curve.name}: ends here: {error}")
            failed += 1
        finally:
            await asyncio.shield(asyncio.to_thread(household.end))
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    return failed


def print_tables(found: report.Found, console: Console) -> None:
    """For people: one for each curve."""
    for curve in report.measured_curves(found):
        head, *rows = report.table_of(found, curve)
        table = Table(*head, title=curve.name)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print("CPU of all three nodes beyond idle; the client's is not in it")
    console.print(describe())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    names = ", ".join(curve.name for curve in CURVES)
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("curves", nargs="*", help=f"of {names}; all by default")
    parser.add_argument("--up-to", type=int, default=1_000_000, help="the largest size")
    parser.add_argument("--messages", type=int, default=20_000, help="of one load in batches")
    parser.add_argument("--repeats", type=int, default=3, help="of each load at each size")
    parser.add_argument("--idle", type=float, default=3.0, help="seconds of measuring idle nodes")
    parser.add_argument("--dir", type=Path, help="where the journals are; a temporary folder")
    parser.add_argument(
        "--from", dest="sources", type=Path, nargs="+", help="JSON of before: measure nothing"
    )
    parser.add_argument("--out", type=Path, help="a folder for pictures of the curves")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print the table of a page")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.curves if name not in names.split(", ")]
    if unknown:
        parser.error(f"no curve {unknown[0]!r}; there are {names}")
    if min(options.up_to, options.messages, options.repeats) < 1 or options.idle <= 0:
        parser.error("--up-to, --messages and --repeats must be 1 or more, --idle above zero")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and draw; SystemExit where the cluster failed."""
    options = _options(arguments)
    found: report.Found = {}
    failed = 0
    if options.sources is not None:
        for source in options.sources:
            found |= report.from_json(json.loads(source.read_text())["figures"])
    else:
        curves = [one for one in CURVES if not options.curves or one.name in options.curves]
        sizes = GrowthSizes(options.up_to, options.messages, options.repeats, options.idle)

        async def work(household: Household, folder: Path) -> int:
            return await measure(household, folder, curves, sizes, found)

        failed = measured("growth", work, within=options.dir)
    if options.json:
        print(json.dumps({"figures": report.as_json(found), "machine": machine()}, indent=2))
    elif options.markdown:
        print(report.markdown(found))
    else:
        print_tables(found, Console(highlight=False))
    if options.out is not None:
        pictures.draw(found, options.out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
