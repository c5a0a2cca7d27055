"""When a periodic task is due: cron lines in a time zone, or a fixed interval.

Owns the grammar of cron lines and the rule for changes of the clock: a time that a day skips is
due at the moment of the change, a time that a day has twice is due once, the first time, unless
the line is for every hour. Pure: the
time is an argument. Must not know tasks or queues.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple, TypeAlias

from fifo.worker.errors import BadTask


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)
_SHORT: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}

_DAYS_MAX: Final = 366 * 8
"""Days to look ahead: February 29 comes within eight years, also across 2100."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron line: minute, hour, day of month, month, day of week, in a zone.

    Where both days are restricted either one is enough, as in every cron.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    every_hour: bool
    zone: tzinfo

    def __str__(self) -> str:
        return f"{self.text} ({self.zone})"

    def after(self, moment: datetime) -> datetime:
        """The first due time after a moment, in UTC. Raises BadTask where there is none."""
        local = moment.astimezone(self.zone)
        # From the day before: a time of its evening may be due today where the clock is changed.
        day = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        day -= timedelta(days=1)
        for _ in range(_DAYS_MAX):
            if self._is_on(day):
                for due in self._times(day):
                    if due > moment:
                        return due
            day += timedelta(days=1)
        raise BadTask(f"cron {self.text!r}: there is no such day")

    def _is_on(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        by_date, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_week if self.either_day else by_date and by_week

    def _times(self, day: datetime) -> list[datetime]:
        """The due times of a local day in UTC, in order, each once."""
        found: dict[datetime, None] = {}
        folds = (0, 1) if self.every_hour else (0,)
        for hour, minute, fold in itertools.product(self.hours, self.minutes, folds):
            local = day.replace(hour=hour, minute=minute, tzinfo=self.zone, fold=fold)
            due = local.astimezone(UTC)
            if due.astimezone(self.zone).replace(tzinfo=None) != local.replace(tzinfo=None):
                due = _change(due - timedelta(hours=3), due, self.zone)
            found[due] = None
        return sorted(found)


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed interval, counted from the epoch: the same due times for every worker."""

    interval_s: int

    def __str__(self) -> str:
        return f"every {self.interval_s} s"

    def after(self, moment: datetime) -> datetime:
        """The first due time after a moment, in UTC."""
        past = int(moment.timestamp() // self.interval_s)
        return datetime.fromtimestamp((past + 1) * self.interval_s, UTC)


Schedule: TypeAlias = Cron | Every


def _change(low: datetime, high: datetime, zone: tzinfo) -> datetime:
    """The moment between two at which the clock of the zone is changed, to the second."""
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high


def cron(text: str, zone: tzinfo) -> Cron:
    """Parse a cron line. Raises BadTask that names the field."""
    parts = _SHORT.get(text.strip(), text).split()
    if len(parts) != len(_FIELDS):
        raise BadTask(
            f"cron {text[:60]!r}: has {len(parts)} fields, not 5 (minute, hour, day of month,"
            f" month, day of week); or one of {', '.join(_SHORT)}"
        )
    minutes, hours, days, months, weekdays = (
        _values(part, field, text) for part, field in zip(parts, _FIELDS, strict=True)
    )
    return Cron(
        " ".join(parts),
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        not parts[2].startswith("*") and not parts[4].startswith("*"),
        parts[1] == "*",
        zone,
    )


def _values(text: str, field: _Field, line: str) -> frozenset[int]:
    found: set[int] = set()
    for item in text.lower().split(","):
        span, slash, step = item.partition("/")
        low, dash, high = span.partition("-")
        try:
            width = int(step) if slash else 1
            if span == "*":
                first, last = field.low, field.high
            else:
                first = _value(low, field)
                last = _value(high, field) if dash else field.high if slash else first
        except ValueError:
            raise _wrong(item, field, line) from None
        if width < 1 or not field.low <= first <= last <= field.high:
            raise _wrong(item, field, line)
        found.update(range(first, last + 1, width))
    return frozenset(found)


def _value(text: str, field: _Field) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    return int(text)


def _wrong(item: str, field: _Field, line: str) -> BadTask:
    return BadTask(
        f"cron {line[:60]!r}: {item[:20]!r} is no {field.name}: from {field.low} to {field.high},"
        " as in 5, 1-5, */10 or 1,3"
    )
