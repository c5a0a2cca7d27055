"""`python -m bench.floor`: the least that rows of `bench.rates` can take on this machine.

Owns the loads, their rounds and the table. A relay has the processes of a cluster of three and
their disks, one frame and one answer on each way, and no product: what a row takes beyond it is
ours, the rest is the machine's. Asserts nothing: figures are for people to read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.floor import roles
from bench.floor.roles import ANSWER_BYTES, FRAME, HOST, Counting
from bench.hardware import describe, machine
from bench.statistics import percentiles, spread
from fifo.loop import new_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CONNECTIONS: Final = 1_000
PACED: Final = 1_000
"""Messages a second of the paced loads."""

CROWD_RATE: Final = 10_000
"""Messages a second of all connections together, sent by steps of a millisecond."""

STEP_S: Final = 0.001
DESCRIPTORS: Final = 4_096
ANSWER_S: Final = 30.0
"""Longest wait for a process."""

_SPAWN = multiprocessing.get_context("spawn")


class Measured(NamedTuple):
    """Percentiles of one run in ms, and CPU of all processes per message in us; 0: not measured."""

    p50_ms: float
    p99_ms: float
    cpu_us: float


class Role:
    """A process of the floor, and the port on which it serves."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=work, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()
        self.port = int(self.said())

    def said(self) -> Any:
        """Return what it sends next. Raises TimeoutError."""
        if not self._pipe.poll(ANSWER_S):
            raise TimeoutError(f"a process of the floor said nothing for {ANSWER_S:.0f} s")
        return self._pipe.recv()

    def ask(self) -> None:
        """Have it begin, or send its CPU time."""
        self._pipe.send(None)

    def cpu_s(self) -> float:
        """The CPU time that it has taken."""
        self.ask()
        return float(self.said())

    def end(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.join(ANSWER_S)


@contextmanager
def _relay(folder: Path) -> Iterator[list[Role]]:
    """The leader, which clients connect to, and its two followers."""
    with ExitStack() as stack:
        started: list[Role] = []
        for name in ("one", "two"):
            started.append(Role(roles.follower, folder / name))
            stack.callback(started[-1].end)
        ports = [one.port for one in started]
        leading = Role(roles.leader, folder / "leader", ports)
        stack.callback(leading.end)
        yield [leading, *started]


@contextmanager
def _echo(_: Path) -> Iterator[list[Role]]:
    serving = Role(roles.echo)
    try:
        yield [serving]
    finally:
        serving.end()


async def _in_turn(port: int, seconds: float, rate: int) -> list[float]:
    """Send one frame after the other, `rate` a second (0: at once); return the seconds of each."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    _, client = await loop.create_connection(
        lambda: Counting(ANSWER_BYTES, lambda _: came.set()), HOST, port
    )
    taken: list[float] = []
    begun = loop.time()
    while (now := loop.time()) < begun + seconds:
        due = begun + len(taken) / rate if rate else now
        if due > now:
            await asyncio.sleep(due - now)
        sent = time.perf_counter()
        came.clear()
        client.transport.write(FRAME)
        await came.wait()
        taken.append(time.perf_counter() - sent)
    client.transport.close()
    return taken


async def _crowd(port: int, seconds: float, rate: int) -> list[float]:
    """Frames of many connections in turn; no times, for they would be those of the steps."""
    loop = asyncio.get_running_loop()
    answered = 0

    def came(_: Counting) -> None:
        nonlocal answered
        answered += 1

    clients = [
        (await loop.create_connection(lambda: Counting(ANSWER_BYTES, came), HOST, port))[1]
        for _ in range(CONNECTIONS)
    ]
    begun, sent = loop.time(), 0
    while (now := loop.time()) < begun + seconds:
        for number in range(sent, int((now - begun) * rate)):
            clients[number % CONNECTIONS].transport.write(FRAME)
            sent += 1
        await asyncio.sleep(STEP_S)
    for client in clients:
        client.transport.close()
    return [0.0] * answered


class Load(NamedTuple):
    """A row of the table."""

    name: str
    place: Any
    """Makes the processes, of which the first serves."""
    work: Any
    """Loads them: port, seconds, rate; a time of each message."""
    rate: int = 0


LOADS: Final = (
    Load("echo of 1 KB, one after the other", _echo, _in_turn),
    Load("echo, 1,000 a second", _echo, _in_turn, PACED),
    Load("echo, 1,000 connections, 10 a second each", _echo, _crowd, CROWD_RATE),
    Load("relay over three disks, one after the other", _relay, _in_turn),
    Load("relay, 1,000 a second", _relay, _in_turn, PACED),
)
WRITERS: Final = {"write and fdatasync of 1 KB": 1, "the same, three at once": 3}


def load(row: Load, folder: Path, seconds: float) -> Measured:
    """Measure one run of a row."""
    with row.place(folder) as started, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(row.work(started[0].port, seconds / 10, row.rate))  # warm
        before = time.process_time() + sum(one.cpu_s() for one in started)
        taken = runner.run(row.work(started[0].port, seconds, row.rate))
        cpu_s = time.process_time() + sum(one.cpu_s() for one in started) - before
    found = percentiles(taken)
    return Measured(1e3 * found.p50, 1e3 * found.p99, 1e6 * cpu_s / len(taken))


def syncs(count: int, folder: Path, seconds: float) -> Measured:
    """Writers at once, each with a file of its own."""
    writers = [Role(roles.writer, folder / f"writer-{each}", seconds) for each in range(count)]
    for one in writers:
        one.ask()
    found = percentiles([each for one in writers for each in one.said()])
    for one in writers:
        one.end()
    return Measured(1e3 * found.p50, 1e3 * found.p99, 0.0)


def measure(folder: Path, runs: int, seconds: float) -> dict[str, list[Measured]]:
    """Every row in each round."""
    found: dict[str, list[Measured]] = {}
    for number in range(runs):
        print(f"round {number + 1} of {runs}", file=sys.stderr, flush=True)
        for name, count in WRITERS.items():
            found.setdefault(name, []).append(syncs(count, folder, seconds))
        for row in LOADS:
            found.setdefault(row.name, []).append(load(row, folder, seconds))
    return found


def print_table(found: dict[str, list[Measured]], console: Console) -> None:
    """Medians with lowest and highest."""
    table = Table("floor", "p50, ms", "p99, ms", "CPU per message, us")
    for name, rounds in found.items():
        columns: Sequence[Sequence[float]] = list(zip(*rounds, strict=True))
        table.add_row(name, *map(_cell, columns))
    console.print(table)
    console.print(describe())


def _cell(values: Sequence[float]) -> str:
    if not any(values):
        return ""
    median, lowest, highest = (f"{value:.2f}" for value in spread(values))
    return f"{median} ({lowest} to {highest})"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="rounds; the median is shown")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of each row")
    parser.add_argument("--dir", type=Path, help="folder for the files; default: temporary ones")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.runs < 1 or options.seconds <= 0:
        parser.error("--runs must be 1 or more, --seconds above zero")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
    with tempfile.TemporaryDirectory(prefix="fifo-floor-", dir=options.dir) as folder:
        found = measure(Path(folder), options.runs, options.seconds)
    if options.json:
        rows = {name: [one._asdict() for one in rounds] for name, rounds in found.items()}
        print(json.dumps({"rows": rows, "machine": machine()}, indent=2))
    else:
        print_table(found, Console(highlight=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
