"""Which entries of the log still hold something that the state points to.

Owns that question, and answers it for a frozen view in bounded steps. An entry lives while a
message of it is in a queue, or a text of a dead letter lies in it; snapshots keep those entries and
no others.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from fifo.machine.limits import BLOCK_BITS, BLOCK_MESSAGES
from fifo.machine.snapshot.snapshot_stream import STEP_ITEMS, View, is_heavy
from fifo.machine.state.blocks import Block
from fifo.machine.state.records import Consumer, Queue
from fifo.machine.types import TextPlace

_PAGE_BITS = 14
"""Indexes are gathered in pages of so many, so that no sort is long."""

_BLOCKS_PER_STEP = 16


class _Pages:
    """Indexes of entries, each once."""

    def __init__(self) -> None:
        self._pages: dict[int, dict[int, None]] = {}

    def add(self, indexes: Iterable[int]) -> None:
        """Gather them; mostly they are one page's."""
        pages = self._pages
        for index in indexes:
            page = pages.get(index >> _PAGE_BITS)
            if page is None:
                page = pages[index >> _PAGE_BITS] = {}
            page[index] = None

    def ascending(self) -> Iterator["array[int]"]:
        """All of them, page by page."""
        for key in sorted(self._pages):
            yield array("Q", sorted(self._pages.pop(key)))


def live(view: View) -> Iterator["array[int]"]:
    """The indexes of all entries that are pointed to, ascending over all arrays together.

    Each `next` is a bounded step, and an empty array means just that.
    """
    found, step = _Pages(), array("Q")
    for count, number in enumerate(view.numbers("queue")):
        queue = view.item("queue", number)
        if is_heavy(queue):
            for _ in _of_queue(found, view.keep(queue)):
                yield step
        else:
            for _ in _of_queue(found, queue):
                pass
            if count % _BLOCKS_PER_STEP == 0:
                yield step
    for count, number in enumerate(view.numbers("consumer")):
        consumer = view.item("consumer", number)
        if not consumer.held:
            if count % STEP_ITEMS == 0:
                yield step
            continue
        # Its queue may change from here on, but a kept block of it is not appended to.
        queue = view.item("queue", consumer.queue)
        if is_heavy(consumer) or is_heavy(queue):
            for _ in _of_consumer(found, view.keep(consumer), view.keep(queue)):
                yield step
        else:
            for _ in _of_consumer(found, consumer, queue):
                pass
            yield step
    yield from found.ascending()


def _of_queue(found: _Pages, queue: Queue) -> Iterator[None]:
    yield from _of_whole_blocks(found, queue)
    yield from _of_fresh(found, queue)
    for count, record in enumerate(queue.records.values()):
        letter = record.dead_letter
        if letter is not None:
            found.add([text.index for text in letter.texts if isinstance(text, TextPlace)])
        if count % STEP_ITEMS == 0:
            yield
    tables = [queue.returned, queue.delayed, *queue.avoided.values(), *queue.waiting.values()]
    for table in tables:
        for count, position in enumerate(table):
            _of_range(found, queue, position, position + 1)
            if count % STEP_ITEMS == 0:
                yield


def _is_whole(queue: Queue, key: int, block: Block) -> bool:
    return queue.live[key] == len(block.sizes)


def _of_whole_blocks(found: _Pages, queue: Queue) -> Iterator[None]:
    """Blocks of which every message is in the queue, wherever there."""
    for count, (key, block) in enumerate(queue.blocks.items()):
        if _is_whole(queue, key, block):
            found.add(block.indexes)
        if count % _BLOCKS_PER_STEP == 0:
            yield


def _of_fresh(found: _Pages, queue: Queue) -> Iterator[None]:
    """Gather the entries of messages in the fresh ranges, holes left out."""
    for head, tail in zip(queue.heads, queue.tails, strict=True):
        for count, (first, end) in enumerate(queue.holes.gaps(head, tail)):
            yield from _of_stretch(found, queue, first, end)
            if count % STEP_ITEMS == 0:
                yield


def _of_stretch(found: _Pages, queue: Queue, start: int, end: int) -> Iterator[None]:
    """A long range, some blocks in each step."""
    count = 0
    while start < end:
        stop = min(end, ((start >> BLOCK_BITS) + 1) << BLOCK_BITS)
        _of_range(found, queue, start, stop)
        start = stop
        count += 1
        if count % _BLOCKS_PER_STEP == 0:
            yield


def _of_consumer(found: _Pages, consumer: Consumer, queue: Queue) -> Iterator[None]:
    count = 0
    for lane in consumer.lanes.values():
        for hold in lane.holds:
            _of_range(found, queue, hold.position, hold.position + hold.count)
            count += 1
            if count % STEP_ITEMS == 0:
                yield


def _of_range(found: _Pages, queue: Queue, start: int, end: int) -> None:
    """The entries of messages that lie side by side."""
    while start < end:
        key = start >> BLOCK_BITS
        stop = min(end, (key + 1) << BLOCK_BITS)
        block = queue.blocks[key]
        if not _is_whole(queue, key, block):
            low, mask = start & (BLOCK_MESSAGES - 1), BLOCK_MESSAGES - 1
            first = bisect_right(block.starts, low) - 1
            last = bisect_right(block.starts, (stop - 1) & mask)
            found.add(block.indexes[first:last])
        start = stop
