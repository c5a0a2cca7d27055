"""Garbage of deleted queues: tables that no code reads any more, emptied a slice at a time.

A queue is deleted by one command, which touches none of its messages; but to let a million records
go at once takes a node hundreds of milliseconds. So the tables wait here, and every entry that is
applied frees a slice of them. They are no part of the state: nothing depends on how much is left,
and a snapshot knows nothing of it.
"""

from collections.abc import Iterator
from typing import Any

from sortedcontainers import SortedList

from fifo.machine.limits import REMAINS_ENTRIES
from fifo.machine.state.positions import PositionMap
from fifo.machine.state.records import Consumer, Queue, State
from fifo.machine.state.tables import PAGE_ROWS, Line, Table


def leave(state: State, item: Queue | Consumer) -> None:
    """A queue or consumer that is in no table any more: its own tables are let go by and by."""
    state.remains += [table for table in _tables(item) if len(table)]


def _tables(item: Queue | Consumer) -> Iterator[Any]:
    if isinstance(item, Consumer):
        yield from (lane.holds for lane in item.lanes.values())
        yield from item.late.parts()
        return
    for slot in type(item).__slots__:
        value = getattr(item, slot)
        if isinstance(value, (Table, Line, PositionMap)):
            yield from value.parts()
        elif isinstance(value, (dict, list, SortedList)):
            yield value


def let_go(state: State) -> None:
    """Free one slice."""
    left = REMAINS_ENTRIES
    remains = state.remains
    while remains and left > 0:
        table = remains[-1]
        count = min(left, len(table))
        if isinstance(table, dict):
            for _ in range(count):
                _, row = table.popitem()
                if isinstance(row, (dict, list)):  # a page
                    left -= PAGE_ROWS
                    break
                left -= 1
        else:
            left -= count
            del table[-count:]
        if not table:
            remains.pop()
