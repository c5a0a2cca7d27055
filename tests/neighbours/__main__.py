"""`python -m tests.neighbours`: every kind of attack beside an honest client.

The exit code is 1 where a fact is broken. `--write` keeps the table in `docs/neighbours.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.neighbours.judge import Verdict, judge, prepare
from tests.neighbours.kinds import KINDS
from tests.neighbours.nodes import Nodes
from tests.neighbours.page import commit_now, write


async def run(kinds: list[str], seconds: float, seed: int, folder: Path) -> list[Verdict]:
    """Judge these kinds one after the other; a broken cluster is replaced by a new one."""
    verdicts: list[Verdict] = []
    nodes: Nodes | None = None
    try:
        for at, kind in enumerate(kinds):
            if nodes is None:
                nodes = Nodes(folder / str(at))
                await nodes.start()
                await prepare(nodes)
            found = await judge(nodes, kind, seconds, seed)
            verdicts.append(found)
            said = "; ".join(found.broken) or "holds"
            cost = f"{found.frames} frames, {found.connections} connections"
            print(f"{kind:<26} {found.p99_ms:5.0f} ms  {cost:<38} {said}", flush=True)
            if found.broken:
                nodes.stop()
                nodes = None
    finally:
        if nodes is not None:
            nodes.stop()
    return verdicts


def main() -> int:
    """The process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.neighbours", description=__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this; repeatable")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each attack")
    parser.add_argument("--seed", type=int, default=1, help="of what is random")
    parser.add_argument("--write", action="store_true", help="keep docs/neighbours.md")
    options = parser.parse_args()
    commit = commit_now()
    with tempfile.TemporaryDirectory(prefix="fifo-neighbours-") as folder:
        kinds = options.kind or list(KINDS)
        verdicts = asyncio.run(run(kinds, options.seconds, options.seed, Path(folder)))
    held = sum(not one.broken for one in verdicts)
    print(f"{held} of {len(verdicts)} kinds: every fact holds")
    if options.write:
        write(verdicts, options.seed, commit)
    return 0 if held == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
