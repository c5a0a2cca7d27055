"""`docs/neighbours.md`: the table of attacks, what each costs and what the honest client notices.

Owns the page. Must not know how a figure came about.
"""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

`python -m tests.neighbours --write` writes this page; with `--runs 3 --spinning 2` it runs all
kinds three times, each time on new nodes and with the next seed, beside two processes that only
spin, and stops at the first broken fact. Times are reported, not asserted (the aim is 100 ms at the
99th percentile).
"""


@dataclass(frozen=True, slots=True)
class Run:
    """All kinds, one after the other, once."""

    verdicts: Sequence[Verdict]
    seed: int
    seconds: float
    """Duration of the whole run."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The state of things at which the runs began."""

    commit: str
    spinning: int
    """Processes that only spin, beside all of it."""


SURVEYS_HEAD: Final = """\
## The attacks of the surveys

Two surveys attacked fifo before there were these kinds. Each of their attacks, and what covers it:
the kinds above, and the number of tests, which stand below. Secrets in logs are looked for after
each kind. Damaged files, and members that forget or come twice, are no neighbours.
"""


def write(runs: Sequence[Run], beginning: Beginning) -> None:
    """Write the page from runs in a row."""
    PAGE.write_text(render(runs, beginning, datetime.datetime.now(datetime.UTC)))


def render(runs: Sequence[Run], beginning: Beginning, when: datetime.datetime) -> str:
    """The page as text."""
    last = runs[-1].verdicts
    beside = f" beside {beginning.spinning} spinning processes" if beginning.spinning else ""
    rows = [
        "| kind | frames | connections | sent | attacker's CPU | honest p99 | facts |",
        "|--|--|--|--|--|--|--|",
        *(_row([run.verdicts[at] for run in runs]) for at in range(len(last))),
    ]
    broken = _items(runs, lambda one: "; ".join(one.broken))
    said = _items(runs, lambda one: f"{one.says}." if one.says else "")
    return "\n".join(
        [
            HEAD,
            fill(
                f"Last whole runs, {len(runs)} in a row: {when:%Y-%m-%d} at {beginning.commit},"
                f" {last[0].seconds:g} s of each attack, {os.cpu_count()} shared cores{beside}. In"
                " the tables are the cost of the last run and the times of all.",
                COLUMNS,
            ),
            "",
            *map(_result, runs),
            "",
            "## The attacks",
            "",
            *(_item(one.kind, f"{SAYS[one.kind]}.") for one in last),
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


def _result(run: Run) -> str:
    held = sum(not one.broken for one in run.verdicts)
    return (
        f"- seed {run.seed}: {held} of {len(run.verdicts)} kinds kept every fact, in"
        f" {run.seconds / 60:.1f} minutes"
    )


def _row(found: Sequence[Verdict]) -> str:
    """The cost of the last run, and what each of them noticed."""
    one = found[-1]
    facts = "broken" if any(each.broken for each in found) else "hold"
    times = ", ".join(f"{each.p99_ms:,.0f}" for each in found)
    return (
        f"| {one.kind} | {one.frames:,} | {one.connections:,} | {one.sent_bytes / 1e6:,.1f} MB"
        f" | {one.cpu_seconds:.1f} s | {times} ms | {facts} |"
    )


def _items(runs: Sequence[Run], said: Callable[[Verdict], str]) -> list[str]:
    """Items of what is said of kinds, with the seeds of the runs where there are several."""
    found = []
    for run in runs:
        of = f" (seed {run.seed})" if len(runs) > 1 else ""
        found += [_item(one.kind + of, said(one)) for one in run.verdicts if said(one)]
    return found


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
    """The commit of the working tree, and whether it was changed; a run asks before it begins, for
    others come meanwhile."""
    command = ("git", "describe", "--always", "--dirty", "--exclude", "*")
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "an unknown commit"
