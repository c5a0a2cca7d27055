"""A case of the sweep, and the table of all that were declared.

Owns what a case is. Must not know any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.sweep.world import Entry, World
    from fifo.machine import commands

    Build = Callable[[World, int], Entry]


@dataclass(frozen=True, slots=True)
class Case:
    """A command at a limit: `build` fills a machine to `size` and returns the entry."""

    kind: str
    name: str
    size: int
    build: Build


CASES: list[Case] = []
"""In the order of their declaration."""


def case(command: type[commands.Command], name: str, size: int) -> Callable[[Build], Build]:
    """Declare the decorated function as a case of this command at this size."""

    def declare(build: Build) -> Build:
        CASES.append(Case(command.__name__, name, size, build))
        return build

    return declare
