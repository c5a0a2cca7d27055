"""The outcomes of the suites on the pages of docs: a block between two marks for each.

Owns the text. Must not know how a suite is run.
"""

from __future__ import annotations

import datetime
import subprocess
from collections import Counter
from textwrap import fill
from typing import Final

from tests.suites.environment import ROOT
from tests.suites.running import Outcome

COLUMNS: Final = 118
"""Of a line of a page."""

ROW_COLUMNS: Final = 156
"""Of a row of a table."""


def write(outcome: Outcome) -> None:
    """Put an outcome in its place. Raises ValueError for a page without the marks."""
    path = ROOT / "docs" / f"{outcome.plan.page}.md"
    path.write_text(placed(path.read_text(encoding="utf-8"), outcome, _commit(), _today()))


def placed(text: str, outcome: Outcome, commit: str, day: str) -> str:
    """The page with the new block."""
    begin, end = (f"<!-- {word} {outcome.plan.package} -->\n" for word in ("begin", "end"))
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"docs/{outcome.plan.page}.md has no marks {begin!r} and {end!r}")
    return before + begin + block(outcome, commit, day) + end + after


def block(outcome: Outcome, commit: str, day: str) -> str:
    """The counts, and each test that did not pass, with the reason."""
    counts = outcome.counts
    said = (
        f"{outcome.plan.package} {outcome.version}, on {day} at {commit}: {counts['passed']} tests"
        f" passed, {counts['skipped']} were skipped by the suite itself (or are expected to fail"
        f" there), {len(outcome.explained)} do not apply, {len(outcome.faults)} failed."
    )
    rows = [
        *_rows(Counter(outcome.skipped.values()), "skipped"),
        *[_row(test, "does not apply", why) for test, why in outcome.explained.items()],
        *[_row(test, "**failed**", outcome.failed[test]) for test in outcome.faults],
    ]
    table = ["| tests | | reason |", "|--|--|--|", *rows, ""] if rows else []
    return "\n".join([fill(said, COLUMNS), "", *table])


def _rows(reasons: Counter[str], words: str) -> list[str]:
    return [_row(str(count), words, why or "none given") for why, count in reasons.items()]


def _row(test: str, words: str, why: str) -> str:
    short = test if len(test) <= ROW_COLUMNS // 2 else f"{test[: ROW_COLUMNS // 2]}..."
    room = ROW_COLUMNS - len(short) - len(words) - 10
    text = why.replace(f"{ROOT}/", "").replace("|", "/").replace("<", "(").replace(">", ")")
    return f"| {short} | {words} | {text if len(text) <= room else text[:room] + '...'} |"


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _today() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
