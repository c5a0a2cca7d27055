"""The verdict: what became of every row, from the publishers' and consumers' own records.

Owns the arithmetic of lost, duplicated and dead-lettered. Never asks the broker: its counters could
agree with each other and be wrong. Pure: records in, verdict out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.demo.fate import Fate, expected, fate_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.demo.records import Chunk, Delivery

EXAMPLES_SHOWN = 10
"""Row numbers named per problem: enough to search the records with."""


@dataclass(frozen=True, slots=True)
class Line:
    """A count of the report beside what it should be. `wanted` None: any value is fine."""

    name: str
    actual: int
    wanted: int | None
    meaning: str

    @property
    def ok(self) -> bool:
        """True where nothing else was expected."""
        return self.wanted is None or self.actual == self.wanted


@dataclass(frozen=True, slots=True)
class Verdict:
    """All counts in the report's order, and what is wrong in words."""

    lines: tuple[Line, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Nothing lost, and every count as expected."""
        return not self.problems and all(line.ok for line in self.lines)

    def __getitem__(self, name: str) -> int:
        """The actual count of one line."""
        return next(line.actual for line in self.lines if line.name == name)


def check(
    count: int,
    published: int,
    confirmed: Iterable[Chunk],
    delivered: Iterable[Delivery],
    dead: Iterable[Delivery],
) -> Verdict:
    """Judge a run over rows 1..count, of which publishers say they sent `published`."""
    plan = expected(count)
    confirmed_rows = {row for chunk in confirmed for row in range(chunk.first, chunk.last + 1)}
    seen = _Seen(delivered, dead)
    finished = seen.acked.keys() | seen.dead.keys()
    rows = range(1, count + 1)
    lost = [row for row in rows if row not in finished]
    stray = sorted(row for row in seen.ids if row not in rows)
    wrong = _wrong_ends(seen)
    stored_twice = sorted(row for row, ids in seen.ids.items() if len(ids) > 1)
    duplicates = sum((seen.acked + seen.terminated).values()) - len(
        seen.acked.keys() | seen.terminated.keys()
    )
    redelivered = seen.delivered - len(seen.ids_of_queue)
    lines = (
        Line("published", published, count, "rows sent by the Spark job"),
        Line("confirmed", len(confirmed_rows), count, "rows on the disks of a majority"),
        Line("delivered", seen.delivered, None, "messages handed to consumers"),
        Line("acked", len(seen.acked), plan.acked, "rows that a consumer finished"),
        Line("nacked", len(seen.nacked), plan.nacked, "rows that failed once, by plan"),
        Line(
            "redelivered",
            redelivered,
            None,
            f"after a row's first; {plan.nacked:,} by plan",
        ),
        Line("dead-lettered", len(seen.dead), plan.dead_lettered, "rows in the dead-letter queue"),
        Line("lost", len(lost), 0, "rows neither acked nor dead-lettered"),
        Line("duplicates", duplicates, None, "finished rows that came once more"),
        Line("stored twice", len(stored_twice), 0, "rows under more than one message id"),
    )
    problems = (
        *_named("lost", lost),
        *_named("not among the rows that were sent", stray),
        *_named("stored twice", stored_twice),
        *_named("ended otherwise than planned", wrong),
        *_named("dead-lettered more than once", sorted(r for r, n in seen.dead.items() if n > 1)),
    )
    return Verdict(lines, problems)


class _Seen:
    """The records, by row."""

    def __init__(self, delivered: Iterable[Delivery], dead: Iterable[Delivery]) -> None:
        self.delivered = 0
        self.acked: Counter[int] = Counter()
        self.nacked: Counter[int] = Counter()
        self.terminated: Counter[int] = Counter()
        self.dead: Counter[int] = Counter()
        self.ids: dict[int, set[str]] = {}
        by_outcome = {"acked": self.acked, "nacked": self.nacked, "terminated": self.terminated}
        for delivery in delivered:
            self.delivered += 1
            self.ids.setdefault(delivery.row, set()).add(delivery.message_id)
            if delivery.outcome in by_outcome:
                by_outcome[delivery.outcome][delivery.row] += 1
        self.ids_of_queue = frozenset(self.ids)
        for letter in dead:
            self.dead[letter.row] += 1
            self.ids.setdefault(letter.row, set()).add(letter.message_id)


def _wrong_ends(seen: _Seen) -> list[int]:
    """Rows whose records do not fit their fate, whatever the totals say."""
    acked_though_hopeless = {row for row in seen.acked if fate_of(row) is Fate.TERMINATE}
    dead_though_fine = {row for row in seen.dead if fate_of(row) is not Fate.TERMINATE}
    nacked_unplanned = {row for row in seen.nacked if fate_of(row) is not Fate.NACK_ONCE}
    never_dead = {row for row in seen.terminated if row not in seen.dead}
    return sorted(acked_though_hopeless | dead_though_fine | nacked_unplanned | never_dead)


def _named(problem: str, rows: list[int]) -> list[str]:
    if not rows:
        return []
    shown = ", ".join(map(str, rows[:EXAMPLES_SHOWN]))
    more = f" and {len(rows) - EXAMPLES_SHOWN} more" if len(rows) > EXAMPLES_SHOWN else ""
    return [f"{problem}: row{'s' if len(rows) > 1 else ''} {shown}{more}"]
