"""A process of a group, started by the benchmark: reports its events as JSON lines.

`python -m bench.raft.members KIND NAME PORTS FOLDER SIZE WINDOW SECONDS`; PORTS is a:1,b:2,c:3.
Owns the command line and the lines: leader, first_commit, figures.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from bench.raft.load import LoadSpec


def say(event: str, **values: Any) -> None:
    """Print a line for the benchmark."""
    print(json.dumps({"event": event, **values}), flush=True)


def main() -> None:
    """Run one member until it is killed."""
    kind, name, ports, folder, size, window, seconds = sys.argv[1:]
    by_name = {one.split(":")[0]: int(one.split(":")[1]) for one in ports.split(",")}
    spec = LoadSpec(int(size), int(window), float(seconds))
    # Neither kind is loaded beside the other: ours changes the library that stock runs.
    kinds = importlib.import_module(f"bench.raft.{kind}")
    kinds.run(name, by_name, Path(folder), spec, say)


if __name__ == "__main__":
    main()
