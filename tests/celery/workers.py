"""Workers of Celery as processes, and what they ran.

Owns their start and end, and the log that the tasks of `app.py` write. Must not know any test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType

from tests.support.cluster import eventually

START_SECONDS = 60.0
"""Celery imports much, and several start at once on a busy machine."""

END_SECONDS = 20.0


class Worker:
    """`celery worker` on the queues that it is given."""

    def __init__(
        self, url: str, folder: Path, name: str, *arguments: str, app: str = "app"
    ) -> None:
        self.output = folder / f"{name}.out"
        self.environment = {
            **os.environ,
            "DRILL_URL": url,
            "DRILL_LOG": str(folder / "runs.log"),
            "C_FORCE_ROOT": "1",
        }
        command = [sys.executable, "-m", "celery", "-A", f"tests.celery.{app}", "worker"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--hostname", f"{name}@drill", "--loglevel", "INFO", *arguments],
                stdout=output,
                stderr=output,
                env=self.environment,
                start_new_session=True,
            )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    async def ready(self) -> None:
        """Wait until it consumes."""

        def look() -> bool:
            text = self.output.read_text()
            assert self.process.poll() is None, text
            return " ready." in text

        await eventually(look, within=START_SECONDS)

    def stop(self) -> str:
        """End it as operators do; what it wrote."""
        self.process.terminate()
        self.process.wait(END_SECONDS)
        return self.output.read_text()

    def kill(self) -> None:
        """SIGKILL it and its pool, without a word."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(END_SECONDS)


def runs(folder: Path) -> Counter[tuple[str, int]]:
    """Count the runs of each task: (name, number)."""
    log = folder / "runs.log"
    lines = log.read_text().splitlines() if log.exists() else []
    found = [line.split() for line in lines]
    return Counter((words[0], int(words[1])) for words in found)
