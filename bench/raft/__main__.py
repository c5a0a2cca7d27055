"""`python -m bench.raft`: opaque commands through three processes, ours and stock in turn.

Owns which workloads are run and the table. Every round runs both kinds one after the other, so that
a noisy minute of the machine falls on both; asserts nothing. Ours syncs each command to three disks
before it counts, the stock library keeps its log in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench.hardware import describe, machine
from bench.loopback import check_running, free_ports, until
from bench.measuring import measured
from bench.processes import Household
from bench.statistics import Spread, spread
from node.raft import boot_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.processes import Child

KINDS = ("ours", "stock")
NAMES = ("a", "b", "c")
PATIENCE_S = 40.0
"""Time of a run beyond its measured seconds: processes start, a leader is elected."""

SETTLED_S = 2.0
"""Between the restart of a killed member and the next kill: it has to be a member again."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`window` commands of `size` bytes outstanding; `figure` is a path into the result."""

    name: str
    size: int
    window: int
    figure: str
    unit: str
    aim: str


WORKLOADS = (
    Workload("1 KB pipelined", 1024, 2000, "per_second", "commands/s", "40,000, twice stock"),
    Workload("64 KB", 65536, 64, "mb_per_second", "MB/s", "100"),
    Workload("1 KB, one at a time", 1024, 1, "ms.p50", "p50 ms", "0.8"),
)
KILLED = Workload("leader killed, 1 KB", 1024, 1, "", "s to a commit", "1.0, worst of 50")
ENDLESS_S = 1e6


class Group:
    """Three members of one kind."""

    def __init__(
        self, household: Household, folder: Path, kind: str, workload: Workload, seconds: float
    ) -> None:
        self._household = household
        self._folder = folder
        self._seconds = seconds
        self._options = (str(workload.size), str(workload.window), str(seconds))
        self._kind = kind
        self._ports = ",".join(
            f"{name}:{port}" for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True)
        )
        self._starts = 0
        self.members: dict[str, tuple[Child, Path]] = {}

    def start(self, name: str) -> None:
        """Start a member, for the first time or again."""
        self._starts += 1
        data = self._folder / name
        data.mkdir(parents=True, exist_ok=True)
        output = self._folder / f"{name}-{self._starts}.jsonl"
        child = self._household.start(
            f"{self._folder.name}-{name}",
            *(sys.executable, "-m", "bench.raft.members", self._kind, name, self._ports),
            *(str(data), *self._options),
            stdout=output,
        )
        self.members[name] = child, output

    def said(self, event: str) -> list[tuple[str, dict[str, Any]]]:
        """Lines of this kind from the members that run now: (name, line)."""
        check_running(child for child, _ in self.members.values())
        found = []
        for name, (_, output) in self.members.items():
            for line in output.read_text().splitlines():
                values = json.loads(line)
                if values["event"] == event:
                    found.append((name, values))
        return found

    async def wait_for(self, event: str, after: float = 0.0) -> tuple[str, dict[str, Any]]:
        """The first such line, of those with a later `at`."""

        async def look() -> tuple[str, dict[str, Any]] | None:
            found = (one for one in self.said(event) if one[1].get("at", 1.0) > after)
            return next(found, None)

        limit_s = self._seconds % ENDLESS_S + PATIENCE_S
        return await until(look, limit_s, f"{self._kind}: no member said {event!r}")

    def end(self) -> None:
        """All of it."""
        self._household.end()


async def measure(
    household: Household, folder: Path, kind: str, workload: Workload, seconds: float
) -> float:
    """Run a workload on a group of its own."""
    group = Group(household, folder, kind, workload, seconds)
    for name in NAMES:
        group.start(name)
    try:
        _, figures = await group.wait_for("figures")
    finally:
        group.end()
    if figures["failed"]:
        _say(f"{kind}, {workload.name}: {figures['failed']:,.0f} commands were not committed")
    value: Any = figures
    for part in workload.figure.split("."):
        value = value[part]
    return float(value)


async def kill_leaders(household: Household, folder: Path, kind: str, kills: int) -> list[float]:
    """Seconds from each kill of a leader to the first commit of the next."""
    group = Group(household, folder, kind, KILLED, ENDLESS_S)
    for name in NAMES:
        group.start(name)
    gaps = []
    try:
        leader, _ = await group.wait_for("first_commit")
        for number in range(kills):
            _say(f"{kind}: kill {number + 1} of {kills}")
            await asyncio.sleep(SETTLED_S)
            child, _ = group.members.pop(leader)
            killed = boot_clock()
            child.signal(signal.SIGKILL)
            after, line = await group.wait_for("first_commit", killed)
            gaps.append(line["at"] - killed)
            group.start(leader)
            leader = after
    finally:
        group.end()
    return gaps


async def run(
    household: Household, folder: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """All rounds; one row per workload and kind."""
    measured: dict[tuple[Workload, str], list[float]] = {}
    for number in range(options.runs):
        for workload in WORKLOADS:
            for kind in options.kind:
                _say(f"round {number + 1} of {options.runs}: {workload.name}, {kind}")
                place = folder / f"{WORKLOADS.index(workload)}-{kind}-{number}"
                value = await measure(household, place, kind, workload, options.seconds)
                measured.setdefault((workload, kind), []).append(value)
                shutil.rmtree(place, ignore_errors=True)
    if options.kills:
        for kind in options.kind:
            measured[KILLED, kind] = await kill_leaders(
                household, folder / f"kills-{kind}", kind, options.kills
            )
    return [
        {
            "workload": workload.name,
            "kind": kind,
            "unit": workload.unit,
            **spread(values)._asdict(),
            "ratio": _ratio(measured.get((workload, "ours")), measured.get((workload, "stock"))),
            "aim": workload.aim,
        }
        for (workload, kind), values in measured.items()
    ]


def _ratio(ours: list[float] | None, stock: list[float] | None) -> float | None:
    """Ours as a multiple of stock; None where one was not measured or did nothing."""
    if not ours or not stock or not spread(stock).median:
        return None
    return spread(ours).median / spread(stock).median


def print_table(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Medians with their spread, and ours as a multiple of stock."""
    table = Table("workload", "kind", "unit", "median", "lowest", "highest", "ours/stock", "aim")
    for row in rows:
        ours = row["kind"] == "ours"
        values = Spread(row["median"], row["lowest"], row["highest"])
        cells = (f"{value:,.2f}" if value < 1000 else f"{value:,.0f}" for value in values)
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        last = (ratio, row["aim"]) if ours else ("", "")
        table.add_row(row["workload"] if ours else "", row["kind"], row["unit"], *cells, *last)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"{options.runs} rounds of {options.seconds:g} s, {options.kills} kills, 3 processes; "
        "ours: fdatasync before a command counts; stock: log in memory, no sync, tuned options"
    )
    console.print(describe())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measure and print; SystemExit where a group failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.raft", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="rounds; the median is shown")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured time of each")
    parser.add_argument("--kills", type=int, default=5, help="leaders killed, of each kind")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS, help="what is measured")
    parser.add_argument("--dir", type=Path, help="where the journals are; a temporary folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = measured(
        "raft",
        lambda household, folder: run(household, folder, options),
        within=options.dir,
    )
    if options.json:
        print(json.dumps({"figures": rows, "machine": machine()}, indent=2))
    else:
        print_table(rows, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
