"""Counts of the calls that each program of the simulation makes of the product's functions.

Owns the count: calls of Python functions of the product, not of the library's, nor of built-in
ones. In virtual time it is the same in every run. Must not know the journeys.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from node.testing.clockwork import CURRENT
from tests.sim import check_raft
from tests.walk.tracer import module_of

_CHECKS: Final = check_raft.__file__
"""The looks of the simulation after each entry, which are no way of a message."""

_ENTERS: Final = {"call": 1, "return": -1}


class Calls:
    """The calls while `counting`, by the name of the program."""

    def __init__(self) -> None:
        self.by_program: Counter[str] = Counter()
        self._checking = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is called until the block ends, by whichever program."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code.co_filename == _CHECKS:
            self._checking += _ENTERS.get(event, 0)
        if self._checking:
            return
        program = CURRENT.get() if event == "call" else None
        if program is not None and module_of(frame.f_code.co_filename) is not None:
            self.by_program[program.name.partition("#")[0]] += 1
