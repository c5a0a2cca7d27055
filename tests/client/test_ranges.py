"""Proves that ranges of tokens behave as the sets that they stand for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fifo.client.consuming import ranges
from fifo.client.consuming.ranges import Ranges

_TOKEN = st.integers(1, 60)


_RANGE = st.tuples(_TOKEN, st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), _RANGE), max_size=40), _RANGE)
def test_ranges_behave_like_a_set_of_tokens(
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


@pytest.mark.slow
@given(st.sets(_TOKEN, min_size=1), st.randoms())
def test_tokens_in_any_order_become_the_same_ranges(tokens: set[int], chance: Any) -> None:
    shuffled = sorted(tokens)
    chance.shuffle(shuffled)
    found = ranges.from_tokens(shuffled)
    assert set(ranges.tokens(found)) == tokens
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))
    assert ranges.count(found) == len(tokens)


@pytest.mark.parametrize("tokens_max", [1, 3, 7, 100])
@pytest.mark.parametrize("ranges_max", [1, 2, 50])
def test_ranges_are_cut_within_both_bounds(tokens_max: int, ranges_max: int) -> None:
    whole = [(1, 10), (12, 12), (20, 33)]
    pieces = list(ranges.chunks(whole, ranges_max, tokens_max))
    assert all(len(piece) <= ranges_max for piece in pieces)
    assert all(ranges.count(piece) <= tokens_max for piece in pieces)
    found = [token for piece in pieces for token in ranges.tokens(piece)]
    assert found == list(ranges.tokens(whole))
