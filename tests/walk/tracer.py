"""Notes of calls from one package into another, by the program of the simulation that made them.

Owns what counts as a step of the walk: the first call of a function, by each program, whose caller
stands in another package or is the event loop. What only answers a question is left out: leaf
functions, properties, and functions that return a bool or an int. Must not know the journeys.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from node.testing.clockwork import CURRENT
from tests.support.pytest_ids import ROOT

PRODUCT = ("fifo", "node")
WATCHER = ROOT / "tests/sim/check_raft.py"
"""The observer of the simulation, whose looks into nodes are no part of what nodes do."""

SIMULATION = "node.testing"
"""The surroundings of nodes in the simulation, which are no part of what nodes do."""

QUESTIONS = ("bool", "int", bool, int)

LANDMARKS = (
    "encode",
    "Opening.receive_data",
    "Opening.next_frame",
    "DurableLog.extend",
    "TcpTransport.send",
)
"""Shown although an idle cluster calls them too: without them the way of a message has gaps."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call: its actor, how many packages deep it is, the function, and the step above it."""

    actor: str
    depth: int
    room: str
    function: str
    sentence: str
    above: str


@dataclass(slots=True)
class _Call:
    program: str
    code: CodeType
    callers: list[CodeType]
    is_leaf: bool = True


class Tracer:
    """The calls between packages while `noting`, in the order in which they were first made."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, CodeType], _Call] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what is called until the block ends, by whichever program."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def codes(self) -> set[CodeType]:
        """Everything that was called across packages, but for the landmarks."""
        return {code for _, code in self._calls if code.co_qualname not in LANDMARKS}

    def steps(self, usual: set[CodeType]) -> list[Step]:
        """Everything noted but questions and the usual; what leads to a step stays."""
        kept = {key: call for key, call in self._calls.items() if _sentence(call.code)}
        kept = {key: call for key, call in kept.items() if not call.is_leaf}
        wanted = {key for key in kept if key[1] not in usual}
        wanted |= {(name, above) for name, code in wanted for above in kept[name, code].callers}
        return [_step(call, kept) for key, call in kept.items() if key in wanted]

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        room = _room(frame.f_code) if event == "call" else None
        if room is None:
            return
        program = CURRENT.get()
        name = "" if program is None else program.name.partition("#")[0]
        callers = _callers(frame)
        if callers is None:
            return
        if callers and (above := self._calls.get((name, callers[0]))):
            above.is_leaf = False
        if not callers or _room(callers[0]) != room:
            self._calls.setdefault((name, frame.f_code), _Call(name, frame.f_code, callers))


def _step(call: _Call, kept: dict[tuple[str, CodeType], _Call]) -> Step:
    depth = sum(1 for _ in groupby(_room(code) for code in call.callers))
    above = (code.co_qualname for code in call.callers if (call.program, code) in kept)
    room, sentence = _room(call.code) or "", _sentence(call.code) or ""
    return Step(call.program, depth, room, call.code.co_qualname, sentence, next(above, ""))


def _callers(frame: FrameType) -> list[CodeType] | None:
    """The project's own functions above this call, nearest first; None where a test looks in."""
    found = []
    above = frame.f_back
    while above is not None:
        if above.f_code.co_filename == str(WATCHER):
            return None
        if _room(above.f_code) is not None:
            found.append(above.f_code)
        above = above.f_back
    return found


@cache
def module_of(file: str) -> str | None:
    """The dotted name of a module of the product; None for other files."""
    path = Path(file)
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in PRODUCT:
        return None
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return None if name.startswith(SIMULATION) else name


@cache
def _room(code: CodeType) -> str | None:
    """The package of a function; a module of an outermost package stands for itself."""
    module = module_of(code.co_filename)
    if module is None:
        return None
    package = module.rpartition(".")[0]
    return module if package in ("", *PRODUCT) else package


@cache
def _sentence(code: CodeType) -> str:
    """The first sentence of a function's docstring; empty for a question and without docstring."""
    found = _function(code)
    if found is None:
        return ""
    asks = inspect.get_annotations(found).get("return") in QUESTIONS
    if asks and code.co_qualname not in LANDMARKS:
        return ""
    return " ".join((inspect.getdoc(found) or "").split()).partition(". ")[0].rstrip(".")


def _function(code: CodeType) -> Callable[..., Any] | None:
    """The function or method of this code; None for properties, lambdas and inner functions."""
    module = module_of(code.co_filename)
    if module is None or code.co_name.startswith("__"):
        return None
    found: Any = importlib.import_module(module)
    for name in code.co_qualname.split("."):
        found = inspect.getattr_static(found, name, None)
    found = getattr(found, "__func__", found)
    return found if inspect.isfunction(found) else None
