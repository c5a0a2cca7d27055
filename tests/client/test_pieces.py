"""The small parts by themselves: ranges, durations, backoffs, specs, ledgers, errors."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fifo
from fifo.client import errors, limits
from fifo.client.backoff import parse
from fifo.client.connection.link import coalesced
from fifo.client.consuming import ranges
from fifo.client.consuming.ranges import Ranges
from fifo.client.durations import milliseconds, parse_ms, patience
from fifo.client.spec import changes_to_wire
from fifo.machine.backoff import delay_ms
from fifo.wire import Code
from fifo.words import backoff as words
from fifo.words.durations import to_text
from fifo.words.queue_options import BY_NAME

_TOKEN = st.integers(1, 60)
_RANGE = st.tuples(_TOKEN, st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), _RANGE), max_size=40), _RANGE)
def test_ranges_do_what_a_set_of_tokens_does(
    steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]
) -> None:
    found, model = Ranges(), set[int]()
    for adds, (first, last) in steps:
        tokens = set(range(first, last + 1))
        if adds:
            found.add(first, last)
            model |= tokens
        else:
            found.remove(first, last)
            model -= tokens
        assert tuple(found) == ranges.from_tokens(sorted(model))
    assert found.lowest == (min(model) if model else None)
    assert bool(found) == bool(model)
    inside = set(range(asked[0], asked[1] + 1))
    assert set(ranges.tokens(found.intersection(*asked))) == inside & model
    assert set(ranges.tokens(found.missing(*asked))) == inside - model
    assert all((token in found) == (token in model) for token in range(75))


@given(st.sets(_TOKEN, min_size=1), st.randoms())
def test_tokens_in_any_order_become_the_same_ranges(tokens: set[int], chance: Any) -> None:
    shuffled = sorted(tokens)
    chance.shuffle(shuffled)
    found = ranges.from_tokens(shuffled)
    assert set(ranges.tokens(found)) == tokens
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))
    assert ranges.count(found) == len(tokens)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (1, 1000), (0.07, 70), (0.0001, 1), (1.0005, 1001), (timedelta(minutes=1), 60_000)],
)
def test_seconds_become_milliseconds_and_never_less(value: Any, expected: int) -> None:
    assert milliseconds(value, "lock") == expected


@pytest.mark.parametrize(
    ("timeout", "expected"), [(0.5, 0.5), (timedelta(seconds=2), 2.0), (-3, 0.0), (0, 0.0)]
)
def test_a_timeout_that_is_over_already_waits_for_nothing(timeout: Any, expected: float) -> None:
    assert patience(timeout) == expected


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), "1s", True, None, 10**12])
def test_what_is_no_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(fifo.InvalidArgument, match="lock"):
        milliseconds(value, "lock")


@pytest.mark.parametrize(
    ("text", "backoff"),
    [
        ("fixed:1s", fifo.Fixed(1)),
        ("exponential:1s..1m*2", fifo.Exponential(1, 60)),
        ("exponential:500ms..1h*1.5", fifo.Exponential(0.5, 3600, 1.5)),
        ("table:1s,5s,30s", fifo.Table([1, 5, 30])),
    ],
)
def test_a_backoff_has_a_text_form(text: str, backoff: Any) -> None:
    assert str(backoff) == text
    assert str(parse(text)) == text


def test_a_backoff_grows_as_the_tables_of_the_specification_say() -> None:
    doubling = fifo.Exponential(min=1, max=60, multiplier=2)
    assert [doubling.delay_s(n) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    quintupling = fifo.Exponential(1, 60, 5)
    assert [quintupling.delay_s(n) for n in range(4)] == [1, 5, 25, 60]
    table = fifo.Table([1, 5, 30])
    assert [table.delay_s(n) for n in (-1, 0, 1, 2, 9)] == [1, 1, 5, 30, 30]
    assert fifo.Exponential(0, 60).delay_s(50) == 0


@pytest.mark.parametrize(
    "text",
    ["", "fixed", "fixed:", "fixed:1", "fixed:1y", "exponential:1s", "exponential:2s..1s",
     "exponential:1s..2s*1", "exponential:1s..2s*x", "table:", "table:1s,", "random:1s"],
)  # fmt: skip
def test_what_is_no_backoff_is_refused(text: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match="backoff"):
        parse(text)


@given(st.integers(0, 10**10))
def test_a_duration_survives_its_text_form(duration_ms: int) -> None:
    assert parse_ms(to_text(duration_ms), "lock") == duration_ms


def test_a_spec_travels_with_only_what_was_given() -> None:
    spec = fifo.QueueSpec(
        "orders",
        lock=30,
        max_deliveries=5,
        dead_letter="orders.dlq",
        nack_backoff=fifo.Exponential(min=1, max=60, multiplier=2),
        timeout_backoff="fixed:5s",
        ttl=timedelta(hours=1),
        count_timeouts=False,
    )
    assert spec.to_wire() == {
        "lock_ms": 30_000,
        "max_deliveries": 5,
        "dead_letter": "orders.dlq",
        "nack_backoff": "exponential:1s..1m*2",
        "timeout_backoff": "fixed:5s",
        "ttl_ms": 3_600_000,
        "count_timeouts": False,
    }
    assert changes_to_wire({"ttl": None, "max_length": 5}) == {"ttl_ms": None, "max_length": 5}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "q" * 256),
        ("lock", 0.5),
        ("lock", 301),
        ("max_deliveries", 0),
        ("max_deliveries", True),
        ("dead_letter", ""),
        ("ordering", "random"),
        ("overflow", "explode"),
        ("ttl", 0),
        ("nack_backoff", lambda failures: 1),
        ("max_length", 1.5),
        ("priorities", 1),
    ],
)
def test_a_bad_field_of_a_spec_is_refused_at_once(field: str, value: Any) -> None:
    with pytest.raises(fifo.InvalidArgument):
        fifo.QueueSpec(**{"name": "orders", field: value})


def test_an_unknown_change_is_refused_by_name() -> None:
    with pytest.raises(fifo.InvalidArgument, match="colour"):
        changes_to_wire({"colour": "red"})


def test_the_fields_of_a_spec_are_the_rows_of_the_table() -> None:
    named = [item.name for item in fields(fifo.QueueSpec)]
    assert sorted(named) == sorted(["name", *BY_NAME])
    assert all(item.default is None for item in fields(fifo.QueueSpec)[1:])


def test_the_backoffs_of_client_and_machine_agree() -> None:
    for text in ("fixed:1s", "exponential:1s..1m*2", "exponential:700ms..9s*1.1", "table:1s,5s"):
        ours, theirs = parse(text), words.parse(text)
        assert str(ours) == str(theirs)
        for failures in range(40):
            # The server's are exact integers; ours may differ by what floats cannot say.
            assert abs(ours.delay_s(failures) * 1000 - delay_ms(theirs, failures)) <= 1


def test_every_code_of_the_protocol_has_its_error_and_unknown_ones_a_plain_one() -> None:
    plain = {code for code in Code if type(errors.from_code(code, "x")) is fifo.FifoError}
    assert plain == {Code.INTERNAL}
    error = errors.from_code("from_the_future", "words", {"a": 1})
    assert (type(error), str(error), error.code, error.detail) == (
        fifo.FifoError,
        "words",
        "from_the_future",
        {"a": 1},
    )


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (fifo.ConnectionLost, ConnectionError),
        (fifo.NotLeader, ConnectionError),
        (fifo.Timeout, TimeoutError),
        (fifo.AuthenticationFailed, PermissionError),
        (fifo.PermissionDenied, PermissionError),
        (fifo.MessageTooLarge, ValueError),
        (fifo.InvalidArgument, ValueError),
    ],
)
def test_errors_are_also_the_builtin_that_fits(
    error: type[fifo.FifoError], builtin: type[Exception]
) -> None:
    assert issubclass(error, fifo.FifoError)
    assert issubclass(error, builtin)


def test_an_error_of_many_messages_keeps_its_class() -> None:
    error = errors.with_progress(errors.from_code(Code.QUEUE_FULL, "full"), ["a"], 1)
    assert isinstance(error, fifo.QueueFull)
    assert isinstance(error, errors.PublishError)
    assert (error.confirms, error.index, str(error), error.code) == (["a"], 1, "full", "queue_full")
    assert isinstance(errors.with_progress(error, [], 0), fifo.QueueFull)


@given(st.lists(st.integers(0, 40_000), max_size=30))
def test_writes_join_what_is_small_and_leave_what_is_large(sizes: list[int]) -> None:
    parts = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    pieces = list(coalesced(parts))
    assert b"".join(pieces) == b"".join(parts)
    small = [piece for piece in pieces if not any(piece is part for part in parts)]
    assert all(len(piece) <= limits.WRITE_BYTES + limits.JOIN_BYTES_MAX for piece in small)
