"""A request ahead: the next answer is on its way while Spark takes the rows of the last.

Owns the thread that asks. Must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(answers: Iterator[T]) -> Iterator[T]:
    """The same, asked for one early. Where the reader stops, the question under way ends with the
    connection, which the caller closes."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="fifo ahead")
    try:
        coming = pool.submit(_next, answers)
        while found := coming.result():
            coming = pool.submit(_next, answers)
            yield found[0]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _next(answers: Iterator[T]) -> tuple[T] | None:
    """The next answer; None behind the last, for a StopIteration cannot cross a future."""
    for one in answers:
        return (one,)
    return None
