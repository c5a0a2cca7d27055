"""``fifo bench``: throughput and latency of a cluster, through the client library.

Owns the set-up, the worker processes and the report. Publishers share one process and consumers
another: a process per client would take the cores from the nodes that are measured. The measured
loops are in `node.cli.load`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import secrets
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

import fifo
from fifo.histogram import Histogram
from fifo.words.bounds import PREFETCH_MAX
from fifo.words.consumer_options import AUTO
from node.cli import output
from node.cli.errors import CliError, UsageProblem
from node.cli.limits import (
    BENCH_BODY_BYTES_MIN,
    BENCH_CLIENTS_MAX,
    BENCH_DRAIN_S,
    BENCH_PACE,
    BENCH_PACE_MAX,
    BENCH_PACED_S,
    BENCH_START_WAIT_S,
    BENCH_WARMUP_S,
    BODY_BYTES_MAX,
)
from node.cli.load import Job, Times
from node.cli.session import Json, Url, choose_url, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NANO = 1_000_000_000


def bench(
    publishers: Annotated[
        int, typer.Option(min=0, max=BENCH_CLIENTS_MAX, help="Number of publishers.", metavar="N")
    ] = 1,
    consumers: Annotated[
        int, typer.Option(min=0, max=BENCH_CLIENTS_MAX, help="Number of consumers.", metavar="N")
    ] = 1,
    size: Annotated[
        int,
        typer.Option(
            min=BENCH_BODY_BYTES_MIN,
            max=BODY_BYTES_MAX,
            help="Body size in bytes.",
            metavar="BYTES",
        ),
    ] = 1024,
    seconds: Annotated[
        float,
        typer.Option(min=0.5, max=86_400, help="Duration of the measurement.", metavar="SECONDS"),
    ] = 20,
    prefetch: Annotated[
        str | None,
        typer.Option(
            help=f"Prefetch per consumer, or {AUTO} (default: that of any client).", metavar="N"
        ),
    ] = None,
    window: Annotated[
        int,
        typer.Option(min=1, max=100_000, help="Unconfirmed messages per publisher.", metavar="N"),
    ] = 1000,
    pace: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=BENCH_PACE_MAX,
            help="Messages per second of a first measurement, that of end-to-end latency; 0: none"
            f" (default: {BENCH_PACE}; none with --queue).",
            metavar="N",
        ),
    ] = None,
    warmup: Annotated[
        float,
        typer.Option(min=0, max=3600, help="Warm-up, which is not measured.", metavar="SECONDS"),
    ] = BENCH_WARMUP_S,
    queue: Annotated[
        str | None,
        typer.Option(help="Existing queue to use (default: a temporary one).", metavar="QUEUE"),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Measure throughput and latency.

    Confirm latency runs from handing a batch to the client until a majority of nodes has it on
    disk (--window 1: one message at a time). End-to-end latency runs until a consumer receives
    the message, at a pace that all can keep (--pace): at full load it would show the backlog.
    """
    held = _prefetch(prefetch)
    if publishers + consumers == 0:
        raise UsageProblem(
            "0 publishers and 0 consumers leave nothing to measure: raise one of them"
        )
    if publishers == 0 and queue is None:
        raise UsageProblem("0 publishers need a queue that has messages: name it with --queue NAME")
    if pace and not (publishers and consumers):
        raise UsageProblem("--pace needs publishers and consumers: raise both, or leave it out")
    if pace is None:
        pace = BENCH_PACE if publishers and consumers and queue is None else 0
    address = choose_url(url)
    roles = {"publish": publishers, "consume": consumers}
    with _queue_of(address, queue) as name:
        jobs = [
            Job(address, name, role, clients, size, window, held, 0, parent=os.getpid())
            for role, clients in roles.items()
            if clients
        ]
        paced = None
        if pace:  # First: at full load a backlog may be left.
            slow = [replace(job, rate=pace) for job in jobs]
            paced = asyncio.run(_measure(slow, warmup, min(seconds, BENCH_PACED_S)))
        results = asyncio.run(_measure(jobs, warmup, seconds))
        left = _depth(address, name)
    settings = {
        "publishers": publishers,
        "consumers": consumers,
        "size": size,
        "seconds": seconds,
        "warmup": warmup,
        "prefetch": "default" if held is None else held,
        "window": window,
        "pace": pace,
    }
    report = make_report(results, settings, left, paced)
    if as_json:
        output.print_json(report)
    else:
        _print_report(report)


def _prefetch(given: str | None) -> int | str | None:
    """The prefetch of the consumers; None for the default of clients. Raises UsageProblem."""
    if given is None or given == AUTO:
        return given
    if given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= PREFETCH_MAX:
        return int(given)
    raise UsageProblem(f"--prefetch: must be from 1 to {PREFETCH_MAX}, or {AUTO}, not {given!r}")


def make_report(
    results: dict[str, dict[str, Any]],
    settings: dict[str, Any],
    left: int | None,
    paced: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Compute the report from the counts of the workers; `paced`: those of the paced load."""
    seconds = settings["seconds"]
    published, acked = results.get("publish"), results.get("consume")
    return {
        "published_per_second": round(published["measured"] / seconds, 1) if published else 0.0,
        "acked_per_second": round(acked["measured"] / seconds, 1) if acked else 0.0,
        "confirm_ms": _latency(published),
        "end_to_end_ms": _latency((paced or {}).get("consume")),
        "published": published["total"] if published else 0,
        "acked": acked["total"] if acked else 0,
        "left_in_queue": left,
        "settings": settings,
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """Describe the machine, on which the figures depend besides the code."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": cores,
        "cpu": _cpu_model(),
        "python": platform.python_version(),
        "loop": _loop_name(),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def _latency(result: dict[str, Any] | None) -> dict[str, float | None] | None:
    if result is None:
        return None
    histogram = Histogram.from_pairs(result["latency"])
    return {
        "p50": _rounded(histogram.percentile_ms(50)),
        "p99": _rounded(histogram.percentile_ms(99)),
        "max": _rounded(histogram.percentile_ms(100)),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _loop_name() -> str:
    # Imported here: it takes a tenth of the start-up of every other command.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        return "asyncio"


async def _measure(jobs: Sequence[Job], warmup: float, seconds: float) -> dict[str, dict[str, Any]]:
    """Run one worker per job over the same span of time; map each role to its result."""
    workers = [Worker(job) for job in jobs]
    try:
        async with asyncio.timeout(BENCH_START_WAIT_S):
            for worker in workers:
                await worker.start()
            for worker in workers:
                await worker.ready()
        begin = time.monotonic_ns() + int(warmup * _NANO)
        end = begin + int(seconds * _NANO)
        times = Times(begin, end, end + int(BENCH_DRAIN_S * _NANO))
        for worker in workers:
            await worker.go(times)
        with _progress() as progress:
            task = progress.add_task("warm-up", total=warmup + seconds, rates="")
            ticker = asyncio.ensure_future(_tick(progress, task, workers, times, warmup))
            try:
                results = await _results(workers)
            except asyncio.CancelledError:
                counts = ", ".join(f"{worker.job.role} {worker.total:,}" for worker in workers)
                output.note(f"interrupted; messages so far: {counts}; no figures are complete")
                raise
            finally:
                ticker.cancel()
    except TimeoutError:
        raise CliError(
            f"the workers did not start within {BENCH_START_WAIT_S:.0f} s;"
            " check the cluster: fifo status"
        ) from None
    finally:
        for worker in workers:
            await worker.close()
    return {job.role: result for job, result in zip(jobs, results, strict=True)}


async def _results(workers: Sequence[Worker]) -> list[dict[str, Any]]:
    """Wait for all results; the first failure cancels the other waits."""
    tasks = [asyncio.ensure_future(worker.result()) for worker in workers]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Worker:
    """Handle of a process that runs `node.cli.load`."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.total = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process and send it the job."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "node.cli.load",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A failure arrives as one line of the protocol; its stderr is for debugging.
            stderr=None if os.environ.get("FIFO_DEBUG") else asyncio.subprocess.DEVNULL,
            start_new_session=True,
            limit=1 << 20,
        )
        await self._send(asdict(self.job))

    async def ready(self) -> None:
        """Wait until all clients of the worker are connected."""
        await self._receive("ready")

    async def go(self, times: Times) -> None:
        """Start the clock."""
        await self._send(asdict(times))

    async def result(self) -> dict[str, Any]:
        """Wait for the result; ``total`` is updated meanwhile."""
        found: dict[str, Any] = await self._receive("result")
        self.total = found["total"]
        return found

    async def close(self) -> None:
        """Kill the process and close its pipes while the event loop runs."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
        process.stdin.close()
        with contextlib.suppress(ConnectionError):
            await process.stdin.wait_closed()
        await process.communicate()

    async def _send(self, line: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        with contextlib.suppress(ConnectionError):  # The cause of its end is in its answer.
            await self._process.stdin.drain()

    async def _receive(self, key: str) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            if "error" in said:
                raise CliError(f"a {self.job.role} worker failed: {said['error']}")
            if key in said:
                return said[key]
            self.total = said.get("total", self.total)
        raise CliError(
            f"a {self.job.role} worker ended without a result; set FIFO_DEBUG=1 for its stderr"
        )


async def _tick(
    progress: Progress, task: Any, workers: Sequence[Worker], times: Times, warmup: float
) -> None:
    """Show the phase of the run and the rates of the last second."""
    started = times.begin - int(warmup * _NANO)
    before = [worker.total for worker in workers]
    sampled = time.monotonic_ns()
    while True:
        await asyncio.sleep(1)
        now = time.monotonic_ns()
        rates = [
            f"{worker.job.role} {(worker.total - old) * _NANO / (now - sampled):,.0f}/s"
            for worker, old in zip(workers, before, strict=True)
        ]
        before, sampled = [worker.total for worker in workers], now
        phase = "warm-up" if now < times.begin else "measuring" if now < times.end else "draining"
        done = min((now - started) / _NANO, (times.end - started) / _NANO)
        progress.update(task, description=phase, completed=done, rates="  ".join(rates))


def _progress() -> Progress:
    console = output.err()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rates]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


@contextlib.contextmanager
def _queue_of(url: str, given: str | None) -> Iterator[str]:
    """Yield the name of the given queue, or of a temporary one that is deleted afterwards."""
    if given is not None:
        yield given
        return
    name = f"fifo-bench-{secrets.token_hex(4)}"
    _declare(url, name)
    try:
        yield name
    finally:
        _delete(url, name)


def _declare(url: str, name: str) -> None:
    async def work(client: fifo.Client) -> None:
        await client.declare(fifo.QueueSpec(name))

    run(url, work)


def _depth(url: str, name: str) -> int | None:
    async def work(client: fifo.Client) -> int:
        queue = (await client.queue(name)).as_dict()
        return int(queue["ready"]) + int(queue["locked"])

    with contextlib.suppress(CliError):  # The figures are complete without it.
        return run(url, work)
    return None


def _delete(url: str, name: str) -> None:
    async def work(client: fifo.Client) -> None:
        await client.delete(name)

    try:
        run(url, work)
    except CliError as error:
        output.note(f"queue {name} was not deleted ({error}); delete it: fifo queue delete {name}")


def _print_report(report: dict[str, Any]) -> None:
    settings = report["settings"]
    rows: list[tuple[str, str]] = [
        ("published", f"{report['published_per_second']:,.0f} messages/s"),
        ("acked", f"{report['acked_per_second']:,.0f} messages/s"),
    ]
    names = ("confirm_ms", "confirm"), ("end_to_end_ms", f"end to end, {settings['pace']:,}/s")
    for key, name in names:
        latency = report[key]
        if latency is not None and latency["p50"] is not None:
            rows.append((name, f"p50 {latency['p50']} ms, p99 {latency['p99']} ms"))
    rows += [
        ("settings", ", ".join(f"{key} {value}" for key, value in settings.items())),
        ("machine", ", ".join(f"{key} {value}" for key, value in report["machine"].items())),
    ]
    output.print_pairs(rows)
