"""Facts that a benchmark's figures depend on besides the code: the machine and the versions.

Owns the words for it, in every report alike. Knows no benchmark.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

from node.cli.bench import machine as named

DISTRIBUTIONS = ("fifo-quorum", "pysyncobj", "msgpack", "pyspark")


def machine() -> dict[str, Any]:
    """Plain data for a JSON report: what `fifo bench` says of the machine, and versions."""
    return {**named(), **{name: _version(name) for name in DISTRIBUTIONS}}


def describe() -> str:
    """A line for people."""
    return ", ".join(f"{name} {value}" for name, value in machine().items())


def filesystem(folder: Path) -> str:
    """File system of a folder, such as ext4; a sync costs nothing where that is tmpfs."""
    found = ("", "an unknown file system")
    mounts = Path("/proc/mounts")
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        _, where, kind, *_ = line.split(" ")
        if folder.resolve().is_relative_to(where) and len(where) >= len(found[0]):
            found = where, kind
    return found[1]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
