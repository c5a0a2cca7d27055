"""The cost of the running hash: `python -m bench.hashing`.

A row of `bench.rates` loads a cluster; the log of one node is then applied again with the hash and
without it, in pairs of alternating order. The difference in CPU time, for each of three nodes,
stands beside what the row took per message of the CPU of all processes. Two rates would have to
differ by more than their spread; here nothing but the hash does. In its place are calls of two
functions that do nothing: some 0.1 us an entry, which are not counted to it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from bench.hardware import describe, machine
from bench.loopback import NODES
from bench.measuring import measured
from bench.rates.checkout import Checkout, Measuring
from bench.rates.rows import CPU, ROWS, Row
from bench.statistics import Spread, spread
from fifo.machine import Machine, commands, running_hash
from node.backup.remains import remains
from node.broker.machine_host import MachineHost
from node.config import load_config
from node.journal.io.storage import OsStorage
from node.raft import command_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.processes import Household

NO_SNAPSHOT_BYTES: Final = 1 << 40
"""The log keeps everything, to be applied from its first entry on."""

USUAL_ROWS: Final = (
    "1 publisher, 1 consumer",
    "8 publishers, 8 consumers",
    "one confirm at a time",
)

Entry = tuple[int, memoryview]


class Recorded(NamedTuple):
    """A log, how many messages were published in it, and what one took of the CPU of all processes,
    in us."""

    entries: Sequence[Entry]
    messages: int
    cpu_us: float


class Cost(NamedTuple):
    """Of one row: microseconds per message of the CPU of one node, and the share of the hash."""

    row: str
    per_entry: float
    cpu_us: float
    without_us: Spread
    hash_us: Spread
    share: Spread


async def record(household: Household, folder: Path, row: Row, seconds: float) -> Recorded:
    """Run the row on a cluster of its own, and read the log of its first node."""
    measuring = Measuring(Checkout.here(), household, folder, NO_SNAPSHOT_BYTES)
    await measuring.start()
    cpu_us = (await measuring.run(row, seconds))[CPU]
    household.end()
    config = load_config(measuring.configuration)
    node, own = config.nodes[0], command_of(())
    with remains(OsStorage(node.data_dir), config, node.name) as journal:
        found = ((index, journal.log.read(index)) for index in range(1, journal.log.last_index + 1))
        entries = [
            (index, memoryview(command)[len(own) :])
            for index, command in found
            if command.startswith(own)
        ]
    host = _host(entries)
    published = (
        one.count
        for index, payload in entries
        for one in host.apply(index, payload)[1]
        if isinstance(one, commands.Publish)
    )
    return Recorded(entries, sum(published), cpu_us)


def _host(entries: Sequence[Entry]) -> MachineHost:
    payloads = dict(entries)
    return MachineHost(Machine(), payloads.__getitem__)


def replayed(entries: Sequence[Entry]) -> tuple[MachineHost, float]:
    """Apply the log to a machine at the beginning; seconds of CPU."""
    host = _host(entries)
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        for index, payload in entries:
            host.apply(index, payload)
        return host, time.process_time() - began
    finally:
        gc.enable()


def replayed_without(entries: Sequence[Entry]) -> float:
    """The same without the hash."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(running_hash, "fold", lambda before, *_: before))
        stack.enter_context(patch.object(running_hash, "holds", lambda _: ()))
        host, taken = replayed(entries)
    assert host.machine.running_hash == 0, "the hash is left out"
    return taken


def compare(name: str, log: Recorded, pairs: int) -> Cost:
    """Both replays in turn, after one of each that warms up."""
    replayed_without(log.entries)
    without, hashes = [], []
    for pair in range(pairs):
        if pair % 2:
            with_s, without_s = replayed(log.entries)[1], replayed_without(log.entries)
        else:
            without_s, with_s = replayed_without(log.entries), replayed(log.entries)[1]
        without.append(1e6 * without_s / log.messages)
        hashes.append(1e6 * (with_s - without_s) / log.messages)
    share = [100 * NODES * each / log.cpu_us for each in hashes]
    per_entry = log.messages / len(log.entries)
    return Cost(name, per_entry, log.cpu_us, spread(without), spread(hashes), spread(share))


def print_table(costs: Sequence[Cost], console: Console) -> None:
    """For people."""
    console.print(_table(costs))
    console.print(f"{NODES} nodes and the clients on one machine; median, lowest, highest of pairs")
    console.print(describe())


def _table(costs: Sequence[Cost]) -> Table:
    table = Table(
        "row",
        "messages an entry",
        "CPU of all, us",
        "a replay without, us",
        "the hash, us",
        "share of all, %",
    )
    for one in costs:
        spreads = (one.without_us, one.hash_us, one.share)
        cells = (f"{a:.3f} ({low:.3f} to {high:.3f})" for a, low, high in spreads)
        table.add_row(one.row, f"{one.per_entry:.1f}", f"{one.cpu_us:.2f}", *cells)
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hashing", description=__doc__)
    parser.add_argument("rows", nargs="*", default=USUAL_ROWS, help="rows of bench.rates")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a row")
    parser.add_argument("--pairs", type=int, default=20, help="of replays")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in (row.name for row in ROWS)]
    if unknown:
        parser.error(f"no row {unknown[0]!r}; there are: {'; '.join(row.name for row in ROWS)}")
    if options.pairs < 1 or options.seconds <= 0:
        parser.error("--pairs must be 1 or more, --seconds above zero")
    return options


def main() -> int:
    """Measure and print; SystemExit where the cluster failed."""
    options = _options()
    costs = []
    for row in ROWS:
        if row.name not in options.rows:
            continue
        print(f"{row.name}: a log is recorded", file=sys.stderr, flush=True)

        async def work(household: Household, folder: Path, row: Row = row) -> Recorded:
            return await record(household, folder / "cluster", row, options.seconds)

        costs.append(compare(row.name, measured("hashing", work), options.pairs))
    if options.json:
        rows = [one._asdict() for one in costs]
        print(json.dumps({"rows": rows, "machine": machine()}, indent=2))
    else:
        print_table(costs, Console(highlight=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
