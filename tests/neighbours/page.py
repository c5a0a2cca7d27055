"""`docs/neighbours.md`: the table of attacks, what each costs and what the honest client notices.

Owns the page. Must not know how a figure came about.
"""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Final

from tests.neighbours.kinds import SAYS
from tests.neighbours.surveys import SURVEYED, Surveyed

if TYPE_CHECKING:
    from tests.neighbours.judge import Verdict

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "neighbours.md"

COLUMNS: Final = 118
"""Of a line of the page."""

HEAD: Final = """\
# Neighbours

One hostile or greedy client at a time beside an honest one, on three real nodes that may have 1,024
descriptors each. The honest client publishes, consumes and renews a lock every 20 ms, and twice a
second another program of its user logs in. `make neighbours` runs all kinds and fails where a fact
is broken: no election, no lost lock, no refusal of the honest client, no node ended, the memory of
each node back within 50 MB in 30 s, no traceback, no secret and at most 100 lines of log per node,
and an attack that was carried out. Beside guessed passwords and old tokens, other users log in by
password, within 1 s of their time in peace. After each kind an operator ends the sessions that are
left. `make test` runs six kinds (`tests/neighbours/test_neighbours.py`). The attacks are in
`tests/neighbours`.

`python -m tests.neighbours --write` writes this page. Times are reported, not asserted (the aim is
100 ms at the 99th percentile).
"""


SURVEYS_HEAD: Final = """\
## The attacks of the surveys

Two surveys attacked fifo before there were these kinds. Each of their attacks, and what covers it:
the kinds above, and the number of tests, which stand below. Secrets in logs are looked for after
each kind. Damaged files, and members that forget or come twice, are no neighbours.
"""


def write(verdicts: Sequence[Verdict], seed: int, commit: str) -> None:
    """Write the page from the verdicts of a run, which began at a commit."""
    PAGE.write_text(render(verdicts, seed, commit, datetime.datetime.now(datetime.UTC)))


def render(verdicts: Sequence[Verdict], seed: int, commit: str, when: datetime.datetime) -> str:
    """The page as text."""
    seconds = verdicts[0].seconds if verdicts else 0.0
    held = sum(not one.broken for one in verdicts)
    rows = [
        "| kind | frames | connections | sent | attacker's CPU | honest p99 | facts |",
        "|--|--|--|--|--|--|--|",
        *map(_row, verdicts),
    ]
    broken = [_item(one.kind, "; ".join(one.broken)) for one in verdicts if one.broken]
    said = [_item(one.kind, f"{one.says}.") for one in verdicts if one.says]
    return "\n".join(
        [
            HEAD,
            f"Last whole run: {when:%Y-%m-%d} at {commit}, {seconds:g} s of each attack, seed"
            f" {seed}, {os.cpu_count()} shared cores:",
            f"{held} of {len(verdicts)} kinds kept every fact.",
            "",
            "## The attacks",
            "",
            *(_item(one.kind, f"{SAYS[one.kind]}.") for one in verdicts),
            "",
            "## What they cost, and what the honest client notices",
            "",
            *rows,
            *(["", "## What else was measured", "", *said] if said else []),
            *(["", "## Broken facts", "", *broken] if broken else []),
            "",
            surveyed(),
        ]
    )


def _row(one: Verdict) -> str:
    facts = "broken" if one.broken else "hold"
    return (
        f"| {one.kind} | {one.frames:,} | {one.connections:,} | {one.sent_bytes / 1e6:,.1f} MB"
        f" | {one.cpu_seconds:.1f} s | {one.p99_ms:,.0f} ms | {facts} |"
    )


def surveyed() -> str:
    """The attacks of the surveys and what covers each, with the gaps."""
    tested = [_item(one.attack, ", ".join(f"`{test}`" for test in one.tests)) for one in SURVEYED]
    gaps = [_item(one.attack, f"{one.gap}.") for one in SURVEYED if one.gap]
    return "\n".join(
        [
            SURVEYS_HEAD,
            "| attack | kinds | tests |",
            "|--|--|--|",
            *map(_surveyed_row, SURVEYED),
            "",
            "Tests that hold what no kind does, or hold it more closely:",
            "",
            *(item for item, one in zip(tested, SURVEYED, strict=True) if one.tests),
            "",
            "What of them nothing here covers:",
            "",
            *gaps,
            "",
        ]
    )


def _surveyed_row(one: Surveyed) -> str:
    return f"| {one.attack} | {', '.join(one.kinds) or '-'} | {len(one.tests) or '-'} |"


def _item(kind: str, text: str) -> str:
    """An item of a list, folded."""
    shown = " ".join(text.split())[:400]
    return fill(
        f"- **{kind}**: {shown}",
        COLUMNS,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def commit_now() -> str:
    """The commit of the working tree; a run asks before it begins, for others come meanwhile."""
    command = ("git", "rev-parse", "--short", "HEAD")
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "an unknown commit"
