"""The layout of rows: over partitions, and over the frames of one.

Owns the arithmetic. Pure; knows neither Spark nor queue.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

CHUNK_ROWS = 500
"""Rows per Arrow batch, and so per frame: some 150 KB."""


def ranges(count: int, parts: int) -> list[tuple[int, int]]:
    """Rows 1..count in consecutive ranges (first, last) of nearly the same length."""
    edges = [count * part // parts for part in range(parts + 1)]
    return [(first + 1, last) for first, last in itertools.pairwise(edges) if first < last]


def in_chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """Lists of CHUNK_ROWS, the last one shorter."""
    rest = iter(rows)
    while chunk := list(itertools.islice(rest, CHUNK_ROWS)):
        yield chunk
