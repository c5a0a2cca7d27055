"""Figures of this process by its system: the `process_*` ones that every exporter has.

Owns the reading of `/proc/self`; where there is none, what `resource` knows.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from node.http.exposition import Page

_PROC = Path("/proc/self")
_STARTED_AT = time.time()
"""Where the system does not tell when the process began: when this was loaded."""


def add_process(page: Page) -> None:
    """Add the figures that can be had here."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    page.counter("process_cpu_seconds_total", "User and system time, in seconds.", cpu_seconds)
    page.gauge("process_start_time_seconds", "When the process began, since 1970.", _started_at())
    page.gauge(
        "process_max_fds",
        "Descriptors that the process may have open.",
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    try:
        pages, resident = map(int, (_PROC / "statm").read_text().split()[:2])
        open_fds = len(os.listdir(_PROC / "fd"))
    except OSError:
        return  # No /proc: not Linux.
    size = resource.getpagesize()
    page.gauge("process_virtual_memory_bytes", "Address space.", pages * size)
    page.gauge("process_resident_memory_bytes", "Memory in use.", resident * size)
    page.gauge("process_open_fds", "Descriptors that are open.", open_fds)


def _started_at() -> float:
    try:
        # The name of the program, in brackets, may hold anything: what follows it does not.
        fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
        boot = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime ")
        )
        return boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, IndexError):
        return _STARTED_AT
