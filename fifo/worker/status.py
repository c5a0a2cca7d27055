"""The state of worker processes as probes and supervisors see it: ready, alive, silent.

Owns the lines that a process writes to its supervisor, and the judgement of their age. Must not
know how they are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from fifo.worker import limits

State: TypeAlias = Literal["starting", "ready", "draining"]

BEAT: Final = b"."
LETTERS: Final[dict[bytes, State]] = {b"s": "starting", b"r": "ready", b"d": "draining"}
BY_STATE: Final = {state: letter for letter, state in LETTERS.items()}


@dataclass(slots=True)
class Report:
    """The last report of a process."""

    clock: Callable[[], float] = time.monotonic
    state: State = "starting"
    heard_at: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.heard_at = self.clock()

    def hear(self, letters: bytes) -> None:
        """Take what it wrote: a letter for each change of its state, or a sign of life."""
        self.heard_at = self.clock()
        for number in letters:
            self.state = LETTERS.get(bytes((number,)), self.state)

    @property
    def alive(self) -> bool:
        """Whether its event loop turns."""
        return self.clock() - self.heard_at < limits.SILENT_SECONDS


@dataclass(slots=True)
class Reports:
    """The processes of a command together."""

    reports: dict[int, Report] = field(default_factory=dict)
    wanted: int = 1

    @property
    def alive(self) -> bool:
        """Whether no process is silent."""
        return all(report.alive for report in self.reports.values())

    @property
    def ready(self) -> bool:
        """Whether every process takes messages."""
        ready = [report for report in self.reports.values() if report.state == "ready"]
        return self.alive and len(ready) >= self.wanted
