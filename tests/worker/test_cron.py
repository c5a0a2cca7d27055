"""Due times of cron lines: zones, changes of the clock, and lines that are wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from fifo.worker.cron import Every, Schedule, cron
from fifo.worker.errors import BadTask

BERLIN = ZoneInfo("Europe/Berlin")


def times(schedule: Schedule, after: str, count: int) -> list[str]:
    moment = datetime.fromisoformat(after)
    found = []
    for _ in range(count):
        moment = schedule.after(moment)
        found.append(moment.strftime("%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("line", "due"),
    [
        ("*/20 * * * *", ["11-23 14:00", "11-23 14:20", "11-23 14:40"]),
        ("0 8 * * mon-fri", ["11-24 08:00", "11-25 08:00", "11-26 08:00"]),
        ("30 6,18 * * *", ["11-23 18:30", "11-24 06:30", "11-24 18:30"]),
        ("0 0 1 */3 *", ["01-01 00:00", "04-01 00:00", "07-01 00:00"]),
        ("0 0 29 feb *", ["02-29 00:00", "02-29 00:00"]),
        ("0 12 13 * 5", ["11-27 12:00", "12-04 12:00", "12-11 12:00", "12-13 12:00"]),
        ("0 0 * * 7", ["11-29 00:00", "12-06 00:00"]),
        ("@daily", ["11-24 00:00", "11-25 00:00"]),
        ("10/25 0 * * *", ["11-24 00:10", "11-24 00:35", "11-25 00:10"]),
    ],
)
def test_a_line_is_due_as_cron_says(line: str, due: list[str]) -> None:
    assert times(cron(line, UTC), "2026-11-23T13:55:00+00:00", len(due)) == due


def test_a_time_that_a_day_skips_is_due_at_the_change() -> None:
    due = times(cron("30 2 * * *", BERLIN), "2026-03-27T12:00:00+00:00", 3)
    assert due == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_a_time_that_a_day_has_twice_is_due_once() -> None:
    due = times(cron("30 2 * * *", BERLIN), "2026-10-24T12:00:00+00:00", 2)
    assert due == ["10-25 00:30", "10-26 01:30"]


def test_every_hour_is_due_in_both_of_a_repeated_hour() -> None:
    due = times(cron("30 * * * *", BERLIN), "2026-10-24T23:45:00+00:00", 3)
    assert due == ["10-25 00:30", "10-25 01:30", "10-25 02:30"]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["*/7 * * * *", "15 3 * * 1", "0 */5 1-7 * *"])
def test_each_due_time_is_after_the_one_before(line: str) -> None:
    moment = datetime(2026, 3, 28, 23, 0, tzinfo=UTC)
    schedule, found = cron(line, BERLIN), []
    for _ in range(40):
        moment = schedule.after(moment)
        found.append(moment)
    assert all(early < late for early, late in pairwise(found))


def test_an_interval_is_due_at_the_same_times_for_all() -> None:
    moment = datetime(2026, 11, 23, 13, 55, 7, tzinfo=UTC)
    assert Every(600).after(moment) == datetime(2026, 11, 23, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("* * * *", "has 4 fields, not 5"),
        ("60 * * * *", "'60' is no minute: from 0 to 59"),
        ("* * * * fri-mon", "'fri-mon' is no day of week: from 0 to 7"),
        ("* x * * *", "'x' is no hour"),
        ("*/0 * * * *", "'*/0' is no minute"),
        ("* * 0 * *", "'0' is no day of month"),
    ],
)
def test_a_wrong_line_names_its_field(line: str, text: str) -> None:
    with pytest.raises(BadTask, match=f"cron .*{text.replace('*', '.')}"):
        cron(line, UTC)


def test_a_day_that_never_comes_is_refused() -> None:
    with pytest.raises(BadTask, match="there is no such day"):
        cron("0 0 31 feb *", UTC).after(datetime(2026, 1, 1, tzinfo=UTC))
