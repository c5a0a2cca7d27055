"""Debian's redis, where Celery's suite keeps its results.

Owns its process. Must not know a suite.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.loopback import free_ports

START_SECONDS: Final = 10.0
END_SECONDS: Final = 10.0


class NoRedis(Exception):
    """There is none; the text says where to get it."""


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[int]:
    """Run redis on a free port of the loopback, in memory; yields the port. Raises NoRedis."""
    program = shutil.which("redis-server")
    if program is None:
        raise NoRedis("no redis-server (Debian: apt-get install redis-server)")
    (port,) = free_ports(1)
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
            stdout=log,
            stderr=log,
        )
    try:
        _wait(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(END_SECONDS)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until it answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise NoRedis(f"redis-server did not start; its exit code is {process.poll()}")
