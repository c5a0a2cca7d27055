"""The score for people: docs/checkers.md, and the same as data.

Owns how it looks. Judges nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from tests.jepsen.checkers import RULES
from tests.jepsen.score.mutation import HARMLESS, UNSEEN
from tests.jepsen.score.scoring import MUTATIONS, Scored

COLUMNS = 118
"""Of a line of the page."""

Results = Mapping[str, list[Scored]]
"""By checker: `plain`, and `Spark` where it was asked."""

_INTRO = """\
# The checkers' own score

A checker that finds nothing proves little before it is known what it would find. So good histories
of real runs with faults are changed, in every way that a rule of [history.md](history.md) names,
and both checkers, the plain one and the one on Spark, judge every copy. `make score` does it and
writes this page; the tests do it at every change, hold the page to the result, and fail where a
listed mutation escapes, where a harmless one raises an alarm, and where the checkers differ in one
rule or subject.

The mutations (`tests/jepsen/score`) were written from history.md alone and share no code with a
checker. The runs (`tests/jepsen/score/recording.py`) are real nodes and clients under kills and
partitions, with every verb and kind of queue (`processes`); the same with dead letters that go
back, paused clients and a sick minority (`redriven`); and simulated ones in which the machine was
seen (`simulated`). Each is judged in parts of eight messages, and each mutation is made in one
part of every kind of run that has a place for it."""

_COUNTED = "Caught by rule, over all copies:"
_HARMLESS = """\
Changes that a correct queue may show as well. No checker may complain; neither may it of the
unchanged parts."""
_UNSEEN = """\
Losses and early burials that look like what a correct queue and a dying client do. They are kept
here so that no reader takes silence for proof; were one found, this page would change."""


def page(results: Results) -> str:
    """docs/checkers.md."""
    lines = [*_folded(_INTRO), "", _total(results), ""]
    lines += [_COUNTED, "", f"| rule | mutations | {' | '.join(results)} |"]
    lines += ["|--|--|" + "--|" * len(results)]
    for rule in RULES:
        counts = (f"{right} of {made}" for right, made in _counts(results, rule))
        lines.append(f"| {rule} | {len(_named(rule))} | {' | '.join(counts)} |")
    for rule in RULES:
        lines += ["", f"## {rule}", "", *_items(rule)]
    lines += ["", "## Harmless", "", *_folded(_HARMLESS), "", *_items(HARMLESS)]
    lines += ["", "## What no history can show", "", *_folded(_UNSEEN), "", *_items(UNSEEN)]
    return "\n".join(lines) + "\n"


def table(results: Results) -> str:
    """For the terminal: a line for each rule, and what went wrong."""
    lines = [_total(results)]
    for rule in (*RULES, HARMLESS, UNSEEN):
        counts = (f"{name} {n} of {made}" for name, (n, made) in _by_checker(results, rule))
        lines.append(f"  {rule:<9} {len(_named(rule)):>3} mutations   {'   '.join(counts)}")
    return "\n".join([*lines, *wrong(results)])


def wrong(results: Results) -> list[str]:
    """In words: what escaped, false alarms, and copies in which the checkers differ."""
    found = []
    for name, scored in results.items():
        for one in scored:
            if not one.right:
                what = sorted({rule for rule, _ in one.found}) or "nothing"
                found.append(f"{name}: {one.copy.name} ({one.copy.mutation.rule}): found {what}")
    for some in zip(*results.values(), strict=True):
        if any(one.found != some[0].found for one in some):
            shown = "; ".join(str(sorted(one.found)) for one in some)
            found.append(f"the checkers differ in {some[0].copy.name}: {shown}")
    return found


def data(results: Results) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "mutations": len(MUTATIONS),
        "rules": {
            rule: {
                name: {"right": right, "copies": made}
                for name, (right, made) in _by_checker(results, rule)
            }
            for rule in (*RULES, HARMLESS, UNSEEN)
        },
        "wrong": wrong(results),
    }


def _total(results: Results) -> str:
    kinds: dict[str, int] = defaultdict(int)
    for mutation in MUTATIONS.values():
        kinds[mutation.rule if mutation.rule in (HARMLESS, UNSEEN) else "rule"] += 1
    caught = "; ".join(
        f"{name} caught {sum(n for n, _ in counts)} of {sum(made for _, made in counts)} copies"
        for name, counts in (
            (name, [dict(_by_checker(results, rule))[name] for rule in RULES]) for name in results
        )
    )
    return f"{kinds['rule']} mutations that break a rule, {kinds[HARMLESS]} harmless: {caught}."


def _named(rule: str) -> list[str]:
    return [name for name, mutation in MUTATIONS.items() if mutation.rule == rule]


def _counts(results: Results, rule: str) -> list[tuple[int, int]]:
    return [count for _, count in _by_checker(results, rule)]


def _by_checker(results: Results, rule: str) -> list[tuple[str, tuple[int, int]]]:
    """By checker: copies that it judged right, of how many."""
    found = []
    for name, scored in results.items():
        own = [one for one in scored if one.copy.mutation.rule == rule]
        found.append((name, (sum(one.right for one in own), len(own))))
    return found


def _items(rule: str) -> list[str]:
    lines = []
    for name in _named(rule):
        text = f"- **{name}**: {MUTATIONS[name].says}"
        lines += wrap(text, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
    return lines


def _folded(text: str) -> list[str]:
    """Paragraphs in lines of the page's length."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += ["", *wrap(" ".join(paragraph.split()), COLUMNS, break_on_hyphens=False)]
    return lines[1:]
