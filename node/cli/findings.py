"""Findings: what a check of a file, a machine or a cluster found, each with what to do about it.

Owns their form, their table and the exit code. Must not know which checks there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from node.cli import output
from node.cli.errors import FAILED


class Severity(StrEnum):
    """The weight of a finding: an error fails the check, advice does not."""

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `check` is its name for programs, `place` a file and line, a node or a user."""

    severity: Severity
    check: str
    place: str
    fact: str
    fix: str = ""

    @property
    def line(self) -> str:
        """The finding for a person."""
        fix = f"; {self.fix}" if self.fix else ""
        return f"{self.severity}: {self.place}: {self.fact}{fix}"

    def as_dict(self) -> dict[str, Any]:
        """The finding for a program."""
        return asdict(self)


def error(check: str, place: str, fact: str, fix: str = "") -> Finding:
    """A finding that fails the check."""
    return Finding(Severity.ERROR, check, place, fact, fix)


def warning(check: str, place: str, fact: str, fix: str = "") -> Finding:
    """A finding that will be an error, or is one under some circumstances."""
    return Finding(Severity.WARNING, check, place, fact, fix)


def advice(check: str, place: str, fact: str, fix: str = "") -> Finding:
    """A finding that could be better."""
    return Finding(Severity.ADVICE, check, place, fact, fix)


def ordered(found: Iterable[Finding]) -> list[Finding]:
    """Errors first, then warnings, then advice; equal ones as they were found."""
    ranks = list(Severity)
    return sorted(found, key=lambda one: ranks.index(one.severity))


def counted(found: Sequence[Finding]) -> str:
    """The numbers of findings in words, as in `1 error, 2 warnings`."""
    parts = []
    for severity in Severity:
        count = sum(one.severity is severity for one in found)
        plural = "" if count == 1 or severity is Severity.ADVICE else "s"
        if count:
            parts.append(f"{count} {severity}{plural}")
    return ", ".join(parts) or "no findings"


def exit_code(found: Sequence[Finding], *, strict: bool) -> int:
    """1 where there is an error, or where a strict check found anything but advice."""
    failing = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    return FAILED if any(one.severity in failing for one in found) else 0


def say(found: Sequence[Finding]) -> None:
    """Print one line for each."""
    for one in found:
        output.say(one.line)
