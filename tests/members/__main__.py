"""`make members`: every story, one after the other, and what was seen.

Owns the run and its table. `python -m tests.members NAME...` runs some of them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.members.stories import STORIES
from tests.support.machines import Machines


async def ran(name: str) -> str:
    """Run a story in a folder of its own; the line about it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fifo-members-") as folder:
        machines = Machines(Path(folder) / "machines")
        try:
            seen = await STORIES[name](machines)
        except Exception:
            for one in machines.all.values():
                print(f"--- {one.name}\n{one.said()[-3000:]}", file=sys.stderr)
            raise
        finally:
            await machines.close()
    return (
        f"{name}: {len(seen.confirmed):,} confirmed, {len(seen.lost)} lost, longest pause"
        f" {seen.longest_pause_s:.2f} s; {time.monotonic() - began:.0f} s"
    )


def main() -> int:
    """Run the stories that were named, or all; 1 where one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.members")
    parser.add_argument("names", nargs="*", metavar="NAME", help="words of a story's name")
    wanted = " ".join(parser.parse_args().names)
    failed = 0
    for name in STORIES:
        if wanted not in name:
            continue
        try:
            print(asyncio.run(ran(name)), flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"{name}: FAILED", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
