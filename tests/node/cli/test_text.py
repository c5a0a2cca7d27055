"""Text forms are parsed exactly, or refused."""

from __future__ import annotations

import pytest

from node.cli import text
from node.cli.errors import USAGE, UsageProblem


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("2.5s", 2.5),
        ("5", 5),
        ("1d", 86400),
        ("0", 0),
    ],
)
def test_a_duration_is_parsed_to_seconds(written: str, seconds: float) -> None:
    assert text.duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "s", "5 parsecs", "-1s", "1s2", "1e3", "٣s", "9" * 40])
def test_an_invalid_duration_is_a_usage_error(written: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        text.duration(written)
    assert caught.value.code == USAGE


@pytest.mark.parametrize(
    ("written", "count"), [("4096", 4096), ("10MB", 10**7), ("64MiB", 64 << 20), ("1.5 KiB", 1536)]
)
def test_a_size_is_parsed_to_bytes(written: str, count: int) -> None:
    assert text.size(written) == count


def test_a_count_is_a_whole_number() -> None:
    assert text.count(" 12 ") == 12
    for wrong in ("", "1.5", "many", "1k", "9" * 30):
        with pytest.raises(UsageProblem, match="not a whole number"):
            text.count(wrong)


@pytest.mark.parametrize("written", ["", "10 elephants", "-1", "MiB"])
def test_an_invalid_size_is_a_usage_error(written: str) -> None:
    with pytest.raises(UsageProblem):
        text.size(written)


@pytest.mark.parametrize(("written", "per_second"), [("100/s", 100), ("60/m", 1), ("2.5", 2.5)])
def test_a_rate_is_parsed_per_second(written: str, per_second: float) -> None:
    assert text.rate(written) == pytest.approx(per_second)


@pytest.mark.parametrize("written", ["", "fast", "1/parsec", "/s"])
def test_an_invalid_rate_is_a_usage_error(written: str) -> None:
    with pytest.raises(UsageProblem):
        text.rate(written)


def test_a_header_value_may_contain_equal_signs_and_the_name_is_required() -> None:
    assert text.headers(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1"):
        with pytest.raises(UsageProblem):
            text.headers([wrong])


def test_bytes_and_durations_are_formatted_in_readable_units() -> None:
    assert [text.bytes_text(n) for n in (0, 1023, 1536, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
    ]
    assert [text.seconds_text(s) for s in (0.82, 12.34, 200, 7500, 180_000)] == [
        "820 ms",
        "12.3 s",
        "3 m 20 s",
        "2 h 5 m",
        "2 d 2 h",
    ]


def test_a_body_is_shown_on_one_line_and_cannot_move_the_cursor() -> None:
    assert text.shortened("a\nb\x1b[2J", 20) == r"a\nb\x1b[2J"
    assert text.shortened("x" * 11, 10) == "x" * 9 + "…"
