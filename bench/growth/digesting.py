"""`python -m bench.growth.digesting`: fifo whose leader hashes its whole state when SIGUSR2 asks.

Owns the order to begin, and what a digest took, a line of JSON each beside the configuration. The
view, the slices and their pace are those of a node as it ships; only the wait for the half hour and
for the other members is left out, and no one compares the outcome.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from node.broker import broker
from node.broker.digests import Digests
from node.cli import processes
from node.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from fifo.machine.contract import Machine

MODULE: Final = "bench.growth.digesting"


def found_in(configuration: Path) -> list[dict[str, Any]]:
    """The cost of each digest of this cluster, the oldest first."""
    file = _beside(configuration)
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def _beside(configuration: Path) -> Path:
    return configuration.with_name("digests.jsonl")


class Measured(Digests):
    """Digests on demand, with the CPU time of this thread in each call."""

    def __init__(
        self, place: int, machine: Callable[[], Machine], now: Callable[[], float], _note: object
    ) -> None:
        super().__init__(0, machine, now, lambda mark: None)
        self._file = _beside(Path(sys.argv[sys.argv.index("--config") + 1]))
        self._asked = False
        self._began_at = 0.0
        self._slices_s: list[float] = []
        signal.signal(signal.SIGUSR2, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def named(self, index: int) -> None:
        """Freeze the state; the first slice."""
        before = time.thread_time()
        super().named(index)
        self._began_at = time.monotonic()
        self._slices_s = [time.thread_time() - before]

    def look(self, stopwatch: Callable[[], float]) -> None:
        """A slice, timed; after the last one the line."""
        if self._asked:
            self._asked = False
            self.named(1)
        made, given_up = self.made_total, self.given_up_total
        before = time.thread_time()
        super().look(stopwatch)
        self._slices_s.append(time.thread_time() - before)
        if (self.made_total, self.given_up_total) != (made, given_up):
            self._write(made=self.made_total > made)

    def _write(self, *, made: bool) -> None:
        line = {
            "made": made,
            "cpu_s": sum(self._slices_s),
            "lasted_s": time.monotonic() - self._began_at,
            "longest_s": max(self._slices_s),
        }
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    with patch.object(broker, "Digests", Measured), patch.object(processes, "MODULE", MODULE):
        main()
