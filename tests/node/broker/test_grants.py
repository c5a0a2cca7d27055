"""Granted deadlines laid over each other, against a slow and obvious model."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from node.broker.grants import Granted, meet, subtract

TOKENS = 30


def as_ranges(tokens: set[int]) -> list[tuple[int, int]]:
    """A set of tokens as ascending ranges."""
    ranges: list[tuple[int, int]] = []
    for token in sorted(tokens):
        if ranges and ranges[-1][1] == token - 1:
            ranges[-1] = (ranges[-1][0], token)
        else:
            ranges.append((token, token))
    return ranges


def as_tokens(ranges: list[tuple[int, int]]) -> set[int]:
    """Ranges as a set of tokens."""
    return {token for first, last in ranges for token in range(first, last + 1)}


tokens = st.sets(st.integers(1, TOKENS))
spans = st.tuples(st.integers(1, TOKENS), st.integers(0, 8), st.integers(1, 50))


@given(st.lists(spans), tokens, st.integers(0, 60))
def test_uncovered_tokens_are_those_without_a_later_grant(
    grants: list[tuple[int, int, int]], asked: set[int], now_ms: int
) -> None:
    granted = Granted()
    model: dict[int, int] = {}
    times: Counter[int] = Counter()
    for first, length, until_ms in grants:
        granted.grant(first, first + length, until_ms)
        model.update(dict.fromkeys(range(first, first + length + 1), until_ms))
        times.update(range(first, first + length + 1))
    for token in range(1, 2 * TOKENS):
        assert granted.of(token) == (model.get(token, 0), times[token])
    left, next_ms = granted.uncovered(as_ranges(asked), now_ms)
    assert as_tokens(left) == {token for token in asked if model.get(token, 0) <= now_ms}
    held = [model[token] for token in asked if model.get(token, 0) > now_ms]
    assert next_ms == min(held, default=None)
    granted.forget_until(now_ms)
    assert granted.uncovered(as_ranges(asked), now_ms) == (left, next_ms)


@given(tokens, tokens)
def test_ranges_subtract_and_meet_like_sets(some: set[int], others: set[int]) -> None:
    assert as_tokens(subtract(as_ranges(some), as_ranges(others))) == some - others
    assert meet(as_ranges(some), as_ranges(others)) == bool(some & others)
