"""Rules of the protocol's page as functions, and what became of each.

Owns the form of a rule, the lists of them, and the outcome. Must not know any rule, nor whether a
node or a client is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A sentence of the page, and the function that raises where it does not hold."""

    section: int
    text: str
    check: Callable[[T], None]

    @property
    def name(self) -> str:
        """The name of its function, for `--only` and for tests."""
        return self.check.__name__


class Rules(Generic[T]):
    """A list of rules; called, it makes a function the check of one."""

    def __init__(self) -> None:
        self.listed: list[Rule[T]] = []

    def __call__(
        self, section: int, text: str
    ) -> Callable[[Callable[[T], None]], Callable[[T], None]]:
        """Decorate the check of a rule of this section."""

        def decorate(check: Callable[[T], None]) -> Callable[[T], None]:
            self.listed.append(Rule(section, text, check))
            return check

        return decorate

    def chosen(self, only: str) -> list[Rule[T]]:
        """Return those whose name contains `only`, in the order of the page."""
        return [one for one in sorted(self.listed, key=lambda one: one.section) if only in one.name]


@dataclass(frozen=True)
class Outcome:
    """Result of a rule; `problem` is None where it holds."""

    rule: Rule[Any]
    problem: str | None
