"""Maps and lines in pages, whose copy for a frozen view is small whatever they hold.

Owns how a table is shared with the views of it: a view takes the list of pages, and a page is
copied at its first change after that. Rows keep the order in which they came, as a dict's do. Knows
nothing of what the rows mean, nor of the times of views.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

PAGE_BITS = 10
PAGE_ROWS = 1 << PAGE_BITS
"""Rows of a page: some ten microseconds to copy; a view costs an entry for each page."""

RUN_BITS = 8
"""256 neighbouring keys lie in one dict of a `Spread`: they come and go by stretches."""

SHARES = (15, 16, 17, 18, 19, 20, 21, 22, 24, 26, 28, 30)
"""Shares of every 256 runs of keys that the dicts of a `Spread` take: from n to 2 n, no two alike,
so that they double one after the other. The largest has a ninth of all, and of the pause."""

SPREAD_ROWS = 1 << 14
"""Rows from which on the index of a table by number is a `Spread`, 0.1 microseconds dearer at each
look: to change over takes two milliseconds, and below it a doubling takes less than one."""


class Rows(Generic[K, V]):
    """The rows of a table as they were at some time."""

    __slots__ = ("_count", "_pages")

    def __init__(self, pages: dict[int, dict[K, V]], count: int) -> None:
        self._pages = pages
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        for page in self._pages.values():
            yield from page

    def values(self) -> Iterator[V]:
        """The values, in the order of their keys."""
        for page in self._pages.values():
            yield from page.values()

    def items(self) -> Iterator[tuple[K, V]]:
        """All pairs."""
        for page in self._pages.values():
            yield from page.items()

    def pages(self) -> Iterator[tuple[int, dict[K, V]]]:
        """The pages by their numbers, to be read: rows have no index of their own."""
        yield from self._pages.items()


class Spread:
    """Numbers by number, like a dict that never doubles as a whole: a dict of 700 000 entries takes
    40 ms to grow, within one insertion."""

    __slots__ = ("_by_run", "_dicts")

    def __init__(self, numbers: dict[int, int]) -> None:
        self._dicts: list[dict[int, int]] = [{} for _ in SHARES]
        self._by_run = [
            part for part, share in zip(self._dicts, SHARES, strict=True) for _ in range(share)
        ]
        for key, number in numbers.items():
            self[key] = number

    def __contains__(self, key: int) -> bool:
        return key in self._by_run[key >> RUN_BITS & 255]

    def __getitem__(self, key: int) -> int:
        return self._by_run[key >> RUN_BITS & 255][key]

    def __setitem__(self, key: int, number: int) -> None:
        self._by_run[key >> RUN_BITS & 255][key] = number

    def put(self, keys: Sequence[int], number: int) -> None:
        """The same number for each of the keys."""
        if type(keys) is range and keys.step == 1:
            for part, run in self._runs(keys):
                for key in run:
                    part[key] = number
        else:
            by_run = self._by_run
            for key in keys:
                by_run[key >> RUN_BITS & 255][key] = number

    def has_any(self, keys: range) -> bool:
        """Whether one of the keys is there, which follow each other."""
        return not all(part.keys().isdisjoint(run) for part, run in self._runs(keys))

    def _runs(self, keys: range) -> Iterator[tuple[dict[int, int], range]]:
        """The keys cut where the dict changes, each run with its dict."""
        start = keys.start
        while start < keys.stop:
            number = start >> RUN_BITS
            end = min(number + 1 << RUN_BITS, keys.stop)
            yield self._by_run[number & 255], range(start, end)
            start = end

    def get(self, key: int) -> int | None:
        """The number of a key, None where it is not there."""
        return self._by_run[key >> RUN_BITS & 255].get(key)

    def pop(self, key: int) -> int:
        """The number of a key that is there and leaves."""
        return self._by_run[key >> RUN_BITS & 255].pop(key)

    def parts(self) -> Iterator[dict[int, int]]:
        """The dicts that hold the numbers, for `garbage.py` to empty in slices."""
        yield from self._dicts


class Table(Rows[K, V]):
    """A map. `index` tells in which page a key is, and so whether it is there."""

    __slots__ = ("_last", "_owned", "index")

    def __init__(self) -> None:
        super().__init__({}, 0)
        self.index: Any = {}  # a dict, or a Spread
        self._last = 0  # the page that new rows go to
        self._owned: dict[int, None] = {}  # pages that no view shares

    def view(self) -> Rows[K, V]:
        """The rows as they are now, whatever becomes of the table."""
        self._owned = {}
        return Rows(self._pages.copy(), self._count)

    def __contains__(self, key: K) -> bool:
        return key in self.index

    def __getitem__(self, key: K) -> V:
        return self._pages[self.index[key]][key]

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """The value of a key, or `default`."""
        number = self.index.get(key)
        return default if number is None else self._pages[number][key]

    def __setitem__(self, key: K, value: V) -> None:
        number = self.index.get(key)
        if number is None:
            number = self.index[key] = self._last
            self._count += 1
        page = self._writable(number)
        page[key] = value
        if len(page) >= PAGE_ROWS and number == self._last:
            self._last += 1
            if self._count >= SPREAD_ROWS and type(key) is int and type(self.index) is dict:
                self.index = Spread(self.index)

    def has_any(self, keys: range) -> bool:
        """Whether one of the keys is there, which are numbers that follow each other."""
        index = self.index
        if type(index) is dict:
            return not index.keys().isdisjoint(keys)
        return bool(index.has_any(keys))

    def put_new(self, keys: Sequence[K], values: Sequence[V]) -> None:
        """Put rows behind the others, of keys that are not there: what `[key] = value` of each
        comes to, a page at a time."""
        done, count = 0, len(keys)
        while done < count:
            number = self._last
            page = self._writable(number)
            piece = keys[done : done + PAGE_ROWS - len(page)]
            page.update(zip(piece, values[done : done + len(piece)], strict=True))
            done += len(piece)
            self._count += len(piece)
            index = self.index
            if type(index) is dict:
                index.update(zip(piece, repeat(number)))
            else:
                index.put(piece, number)
            if len(page) >= PAGE_ROWS:
                self._last += 1
                if self._count >= SPREAD_ROWS and type(piece[0]) is int and type(index) is dict:
                    self.index = Spread(index)

    def __delitem__(self, key: K) -> None:
        number = self.index.pop(key)
        self._count -= 1
        page = self._writable(number)
        del page[key]
        if not page:
            del self._pages[number], self._owned[number]
            self._last += number == self._last  # rows stay in the order of the pages' numbers

    def take(self, key: K) -> V | None:
        """Take a row out; its value, None where there is none."""
        if key not in self.index:
            return None
        value = self[key]
        del self[key]
        return value

    def parts(self) -> Iterator[dict[Any, Any]]:
        """The dicts that hold most of the rows, for `garbage.py` to empty in slices."""
        if isinstance(self.index, Spread):
            yield from self.index.parts()
        else:
            yield self.index
        yield self._pages

    def _writable(self, number: int) -> dict[K, V]:
        if number in self._owned:
            return self._pages[number]
        self._owned[number] = None
        page = self._pages.get(number)
        page = self._pages[number] = {} if page is None else page.copy()
        return page


class Line(Generic[V]):
    """A line of rows: they join at its end and leave at its front. A view shares all pages, which
    only grow: rows behind its own end are none of its. `count` is its length, to be read."""

    __slots__ = ("_front", "_pages", "count")

    def __init__(self, rows: Iterable[V] = ()) -> None:
        self._pages: dict[int, list[V]] = {}
        self._front = self.count = 0
        self.extend(rows)

    def view(self) -> "Line[V]":
        """The rows as they are now; it is only read."""
        twin: Line[V] = Line()
        twin._pages, twin._front, twin.count = self._pages.copy(), self._front, self.count
        return twin

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[V]:
        for place in range(self._front, self._front + self.count):
            yield self._pages[place >> PAGE_BITS][place & (PAGE_ROWS - 1)]

    def first(self) -> V:
        """The row at the front; there must be one."""
        return self._pages[self._front >> PAGE_BITS][self._front & (PAGE_ROWS - 1)]

    def append(self, row: V) -> None:
        """A row joins at the end."""
        number = self._front + self.count >> PAGE_BITS
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = []
        page.append(row)
        self.count += 1

    def extend(self, rows: Iterable[V]) -> None:
        """Several join."""
        for row in rows:
            self.append(row)

    def parts(self) -> Iterator[dict[int, list[V]]]:
        """The dicts that hold most of the rows, for `garbage.py` to empty in slices."""
        yield self._pages

    def popleft(self) -> V:
        """The row at the front leaves; there must be one."""
        row = self.first()
        self._front += 1
        self.count -= 1
        if not self._front & (PAGE_ROWS - 1):
            del self._pages[(self._front >> PAGE_BITS) - 1]
        return row
