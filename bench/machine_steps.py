"""The steps of Python's interpreter that a lone message costs the machine, by part of the machine.

`python -m bench.machine_steps` counts them, and the calls of functions written in Python, of one
publish of one message that is handed out at once and of its ack. Unlike a time, a count is the same
however busy the computer is; it differs between versions of Python. Owns which part a function is
of. Knows nothing of how long a step takes: `bench.machine` times the whole.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.machine_cycle import Cycle

if TYPE_CHECKING:
    from types import FrameType

WARM_UP = 1_500
"""Pairs before the one that is counted: a block and a half, so that it begins none."""

PARTS = {
    "machine_cycle": "the commands themselves",
    "machine": "the entry around them",
    "tick": "the entry around them",
    "running_hash": "the running hash",
    "publish": "storing",
    "checkout": "handing out",
    "settle": "the ack",
}
"""By module. A function of another one is part of what called it."""


class Steps(NamedTuple):
    """The cost of a part."""

    steps: int
    calls: int


def count() -> dict[str, Steps]:
    """The steps and calls of a pair, by part."""
    once = Cycle(1).work()
    for _ in range(WARM_UP):
        once()
    found = {part: Steps(0, 0) for part in PARTS.values()}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        part = _part(frame)
        steps, calls = found[part]
        found[part] = Steps(steps + (event == "opcode"), calls + (event == "call"))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        once()
    finally:
        sys.settrace(before)
    return found


def _part(frame: FrameType | None) -> str:
    while frame is not None:
        part = PARTS.get(Path(frame.f_code.co_filename).stem)
        if part is not None:
            return part
        frame = frame.f_back
    raise LookupError("a function that none of the parts called")


def main() -> int:
    """Print the table."""
    found = count()
    whole = sum(one.steps for one in found.values())
    print(f"steps of the interpreter and calls for a lone pair, Python {sys.version.split()[0]}")
    for part, one in sorted(found.items(), key=lambda item: -item[1].steps):
        print(f"{part:26} {one.steps:6} {one.steps / whole:6.0%} {one.calls:5}")
    print(f"{'in all':26} {whole:6} {1:6.0%} {sum(one.calls for one in found.values()):5}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
