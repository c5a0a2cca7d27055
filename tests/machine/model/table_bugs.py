"""Bugs of tables and of sets of positions, for the hunt of `mutants`: of their views and runs.

Owns those bugs, each as one place in the source of one function, and the tests that notice them:
what a view shares, and where an index changes its dict, no story sees. Must not know other bugs.
"""

from __future__ import annotations

from fifo.machine.state import positions, records, tables
from tests.machine import test_tables
from tests.mutants.switch import Switch, edited

BUGS: dict[str, Switch] = {
    "a page of a table is written though a view shares it": edited(
        tables.Table,
        "_writable",
        "if page is None else page.copy()",
        "if page is None else page",
    ),
    "a page of a table is copied at every change": edited(
        tables.Table,
        "_writable",
        "self._owned[number] = None",
        "self._owned.pop(number, None)",
    ),
    "a view of a table leaves its pages to the table alone": edited(
        tables.Table,
        "view",
        "self._owned = {}",
        "pass",
    ),
    "keys that are put together end with their first run": edited(
        tables.Spread,
        "_runs",
        "start = end",
        "return",
    ),
    "a run of keys begins anew where its dict changes": edited(
        tables.Spread,
        "_runs",
        "number + 1 << RUN_BITS",
        "(number + 1 << RUN_BITS) + 1",
    ),
    "a page of delays is written though a view shares it": edited(
        positions.PositionMap,
        "_writable",
        "if values is None else values.copy()",
        "if values is None else values",
    ),
    "a page of delays is copied at every change": edited(
        positions.PositionMap,
        "_writable",
        "self._owned[block] = None",
        "self._owned.pop(block, None)",
    ),
    "a set of positions is changed though a view shares it": edited(
        records.Queue,
        "own",
        "positions.generation != self.generation",
        "False",
    ),
}

_SHARING = (
    test_tables.test_a_page_of_a_table_is_copied_at_its_first_change_and_not_again,
    test_tables.test_a_view_keeps_waiting_and_released_messages_as_they_were,
)

_RUNS = (test_tables.test_runs_of_keys_are_put_and_found_as_each_key_alone,)

DIRECTED = {
    "keys that are put together end with their first run": _RUNS,
    "a run of keys begins anew where its dict changes": _RUNS,
    "a page of a table is written though a view shares it": _SHARING,
    "a page of a table is copied at every change": _SHARING,
    "a view of a table leaves its pages to the table alone": _SHARING,
    "a page of delays is written though a view shares it": _SHARING,
    "a page of delays is copied at every change": _SHARING,
    "a set of positions is changed though a view shares it": _SHARING,
}
