"""A common start of workers of different speeds: small files in one folder.

Owns these files. Each worker says that it is connected; once all are, the driver of the run says
from when until when counts, and maybe when a leader was killed. Times are of the monotonic clock,
which all processes of a machine share. Knows no load.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_S = 0.02
TIMES = "times.json"
KILLED = "killed"
ARRIVED = ".arrived"


@dataclass(frozen=True, slots=True)
class Times:
    """The measured window: from `begin_ns` to `end_ns`, monotonic."""

    begin_ns: int
    end_ns: int


class Meeting:
    """A folder, of one load of one system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def call(self) -> None:
        """Make the place, before any worker knows of it."""
        self._folder.mkdir(parents=True)

    def arrive(self, name: str) -> None:
        """A worker is connected."""
        (self._folder / f"{name}{ARRIVED}").touch()

    def arrived(self) -> int:
        """Number of those that are there."""
        return len(list(self._folder.glob(f"*{ARRIVED}")))

    def begin(self, warm_up_s: float, seconds: float) -> Times:
        """Say from when on it counts: after a warm-up from now, for so many seconds."""
        begin = time.monotonic_ns() + int(warm_up_s * 1e9)
        times = Times(begin, begin + int(seconds * 1e9))
        self._write(TIMES, json.dumps(asdict(times)))
        return times

    async def times(self) -> Times:
        """Wait until that is said."""
        while True:
            said = self._read(TIMES)
            if said is not None:
                return Times(**json.loads(said))
            await asyncio.sleep(POLL_S)

    def killed(self) -> None:
        """The leader is dead since now."""
        self._write(KILLED, str(time.monotonic_ns()))

    def killed_ns(self) -> int | None:
        """Since when it is; None before."""
        said = self._read(KILLED)
        return None if said is None else int(said)

    def _read(self, name: str) -> str | None:
        path = self._folder / name
        return path.read_text() if path.exists() else None

    def _write(self, name: str, text: str) -> None:
        """Whole or not at all: somebody may look meanwhile."""
        path = self._folder / name
        path.with_suffix(".new").write_text(text)
        os.replace(path.with_suffix(".new"), path)
