"""Many seeds of a simulator, on all cores: failures are printed at once, a summary at the end.

Owns the worker processes and what is printed. Knows nothing of what a seed decides: it is given a
function that runs one, and the command by which a person repeats it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TELL_SECONDS = 60.0
"""Between two lines of progress where no terminal shows it all the time."""

SEEDS_PER_WORKER = 1_000
"""After so many a worker makes room for a new one: whatever leaks stays small."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a shell."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Outcome of a seed: `error` is what did not hold; `counts` are added up over all seeds."""

    seed: int
    error: str | None
    simulated_seconds: float
    counts: Counter[str]


def add_jobs_option(parser: ArgumentParser, what: str = "with --seeds: number") -> None:
    """Add the option for how many run at a time, as both simulators take it."""
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    text = f"{what} that run at a time (default: one on each core)"
    parser.add_argument("--jobs", type=_at_least_one, default=cores, metavar="N", help=text)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text} is no number of processes, 1 or more")
    return int(text)


def many(run: Callable[[int], Ran], seeds: range, *, jobs: int, repeat: str) -> int:
    """Run `seeds` in `jobs` processes; `repeat` is the command for `{seed}` alone.

    `run` has to be one that another process can import. Returns the exit code: 1 where something
    does not hold or a worker died, 130 where Ctrl-C ended it before.
    """
    tally, screen = Tally(seeds), _Screen()
    with _until_ctrl_c() as interrupted:
        screen.line(f"{tally.seeds_told()}, {jobs} at a time")
        try:
            for ran in _each(run, seeds, jobs, interrupted):
                tally.add(ran)
                if ran.error is not None:
                    again = repeat.format(seed=ran.seed)
                    screen.line(f"seed {ran.seed}: {ran.error}; repeat it: {again}")
                screen.progress(tally.progress())
        except BrokenProcessPool:
            tally.broken = True
    for line in tally.summary():
        screen.line(line)
    if tally.failed or tally.broken:
        return 1
    return INTERRUPTED if tally.done < len(seeds) else 0


@dataclass(slots=True)
class Tally:
    """Outcomes of the seeds that have run so far."""

    seeds: range
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    simulated_seconds: float = 0.0
    failed: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    broken: bool = False

    def add(self, ran: Ran) -> None:
        """Add the outcome of one more seed."""
        self.done += 1
        self.simulated_seconds += ran.simulated_seconds
        self.counts += ran.counts
        if ran.error is not None:
            self.failed.append(ran.seed)

    def seeds_told(self) -> str:
        """Which seeds they are."""
        return f"{len(self.seeds)} seeds from {self.seeds.start}"

    def progress(self) -> str:
        """A line for who waits."""
        count = len(self.seeds)
        took = time.monotonic() - self.began
        left = timedelta(seconds=round(took / self.done * (count - self.done)))
        failed = len(self.failed) or "none"
        return (
            f"{self.done} of {count}, {self.done / took:.1f} seeds/s, {failed} failed, {left} left"
        )

    def summary(self) -> list[str]:
        """Return the lines at the end: events by count, duration, speed, failed seeds."""
        took = time.monotonic() - self.began
        end = ""
        if self.broken:
            end = f"a worker process died (was there memory enough?) after {self.done} of "
        elif self.done < len(self.seeds):
            end = f"interrupted after {self.done} of "
        return [
            *(f"{times:8} {what}" for what, times in sorted(self.counts.items())),
            f"{end}{self.seeds_told()} in {took:.0f} s: {self.done / took:.1f} seeds/s,"
            f" {self.simulated_seconds / took:.0f} simulated s/s;"
            f" failed: {sorted(self.failed) or 'none'}",
        ]


class _Screen:
    """Output of the progress: a terminal shows it all the time, a file now and then."""

    def __init__(self) -> None:
        self._erase = "\r\x1b[K" if sys.stdout.isatty() else ""
        self._told = time.monotonic()

    def line(self, text: str) -> None:
        """A line that stays."""
        print(f"{self._erase}{text}", flush=True)

    def progress(self, text: str) -> None:
        """A line that the next one may take the place of."""
        if self._erase:
            print(f"{self._erase}{text}", end="", flush=True)
        elif time.monotonic() > self._told + TELL_SECONDS:
            self._told = time.monotonic()
            self.line(text)


@contextmanager
def _until_ctrl_c() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one ends everything as ever. (A
    KeyboardInterrupt is lost where it comes in the middle of a fork.)"""
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def interrupt(*_: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _each(
    run: Callable[[int], Ran], seeds: range, jobs: int, interrupted: threading.Event
) -> Iterator[Ran]:
    """The results as they come, by workers that are replaced now and then; after an interruption
    of those that had begun."""
    at_once = jobs * SEEDS_PER_WORKER
    for first in range(0, len(seeds), at_once):
        waiting = iter(seeds[first : first + at_once])
        with ProcessPoolExecutor(jobs, initializer=_begin_worker) as pool:
            running: set[Future[Ran]] = set()
            while True:
                if not interrupted.is_set():
                    # One more than run at once: no worker waits for the next.
                    new = islice(waiting, jobs + 1 - len(running))
                    running |= {pool.submit(run, seed) for seed in new}
                if not running:
                    break
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)


def _begin_worker() -> None:
    """Ctrl-C is for the parent, which lets the workers end what they are at; without a parent
    they end at once. Logging is off: nodes whose disks fail and callbacks raise log a lot."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker"
    parent.join()
    os._exit(1)
