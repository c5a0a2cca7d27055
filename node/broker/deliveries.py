"""Deliveries as frames: the machine's runs in, columns and slices of the log out.

Owns the split of a delivery into frames and the making of each: one memoryview slice of bodies per
run, straight from the log entry that holds them, and columns only if a value differs from the
default. Per message, only the numbers of such columns are built. Must not know connections or
sessions. The columns are those of `fifo/wire/columns.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from fifo.machine.contract import (
    BlobColumn,
    DeadLetter,
    Deliver,
    Run,
    Text,
    TextPlace,
)
from fifo.wire import Buffer, columns, encode
from fifo.wire.messages import Deliver as DeliverFrame
from fifo.wire.messages import Peeked
from fifo.words.bounds import PRIORITY_DEFAULT
from fifo.words.settlement import AttemptOutcome, Reason
from fifo.words.stacks import stack_line
from node.broker import limits
from node.raft import NotCached

ReadArea: TypeAlias = Callable[[int], memoryview]
"""The body area of the log entry with this index. Raises `NotCached` if it has to be read from the
disk first, IndexError if a snapshot has dropped it."""

Columns: TypeAlias = list[tuple[int, int]]

_PRIORITY_DEFAULT = bytes([PRIORITY_DEFAULT])
_ONE = array("I", [1])
_ZERO = EMPTY_SIZES = array("I", [0])
"""The size of one empty body."""
_ORIGIN_BYTES = 46  # five integers of at most nine bytes, and the list around them
_ORIGIN = attrgetter("count", "queue_number", "producer", "number", "published_wall_ms")
_COUNT, _SIZES, _KEYS, _HEADERS, _PRIORITIES, _ATTEMPTS, _FAILURES = map(
    attrgetter, ("count", "sizes", "keys", "headers", "priorities", "attempts", "failures")
)
_LETTER_BYTES = 200  # the names of a dead letter's fields, and what msgpack adds
_ATTEMPT_BYTES = 32


def chunks(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """Split runs into lists that each fit into one frame, or hold one run."""
    if len(runs) == 1:
        yield runs
        return
    start = size = header = 0
    for at, run in enumerate(runs):
        run_bytes, header_bytes = _sizes(run)
        if at > start and (
            size + run_bytes > limits.DELIVER_BYTES
            or header + header_bytes > limits.DELIVER_HEADER_BYTES
        ):
            yield runs[start:at]
            start, size, header = at, 0, 0
        size += run_bytes
        header += header_bytes
    if start < len(runs):
        yield runs[start:]


def deliver_frame(
    effect: Deliver,
    runs: Sequence[Run],
    first_token: int,
    remaining_ms: int,
    read: ReadArea,
    *,
    keys_out: bool = False,
) -> list[Buffer]:
    """The frame of one chunk of a delivery."""
    listed, raw, dead_letters = _raw(runs, read)
    message = DeliverFrame(
        consumer=effect.consumer,
        queue=effect.queue,
        first_token=first_token,
        count=count_of(runs),
        remaining_ms=remaining_ms,
        columns=tuple(listed),
        runs=tuple(map(_ORIGIN, runs)),
        dead_letters=dead_letters,
        repeat=effect.repeat,
        label=effect.label,
        keys_out=keys_out,
    )
    return encode(message, 0, raw)


def count_of(runs: Sequence[Run]) -> int:
    """Number of messages of these runs."""
    return sum(map(_COUNT, runs))


def entries_of(run: Run) -> list[int]:
    """The entries of the log that a frame with this run needs."""
    letter = run.dead_letter
    own = [run.index] if _lies_in_log(run) else []
    if letter is None:
        return own
    return [*own, *(text.index for text in letter.texts if isinstance(text, TextPlace))]


def _lies_in_log(run: Run) -> bool:
    """Whether a frame with this run needs its entry: not where all of it is empty."""
    return bool(run.bodies_bytes or run.keys or run.headers)


def count_at_hand(runs: Sequence[Run], read: ReadArea) -> int:
    """Number of leading runs whose entries are all in memory."""
    known = -1
    for count, run in enumerate(runs):
        if run.index == known and run.dead_letter is None:
            continue
        try:
            for index in entries_of(run):
                read(index)
        except NotCached:
            return count
        known = run.index
    return len(runs)


def in_one_peek(runs: Sequence[Run]) -> Sequence[Run]:
    """The leading runs that fit into the answer to a peek."""
    size = header = 0
    for taken, run in enumerate(runs):
        run_bytes, header_bytes = _sizes(run)
        size += run_bytes
        header += header_bytes
        if taken and (size > limits.PEEK_BYTES_MAX or header > limits.DELIVER_HEADER_BYTES):
            return runs[:taken]
    return runs


def peeked(queue: str, runs: Sequence[Run], read: ReadArea) -> tuple[Peeked, list[Buffer]]:
    """The answer to a peek, and its raw part."""
    listed, raw, dead_letters = _raw(runs, read)
    count, origins = count_of(runs), tuple(map(_ORIGIN, runs))
    return Peeked(queue, count, tuple(listed), origins, dead_letters), raw


def _sizes(run: Run) -> tuple[int, int]:
    """(bytes of a run in the raw part of a frame, upper bound of those in its header)."""
    keys = 0 if run.keys is None else run.keys.blob_bytes
    headers = 0 if run.headers is None else run.headers.blob_bytes
    header = _ORIGIN_BYTES
    letter = run.dead_letter
    if letter is not None:
        header += _LETTER_BYTES + len(letter.history) * _ATTEMPT_BYTES
        for text in (*letter.texts, letter.exception_type, letter.source):
            if text is not None:
                header += text.size if isinstance(text, TextPlace) else 4 * len(text)
    return run.bodies_bytes + keys + headers + 4 * run.count, header


def _raw(
    runs: Sequence[Run], read: ReadArea
) -> tuple[Columns, list[Buffer], tuple[tuple[int, dict[str, Any]], ...]]:
    """Columns, raw parts and dead letters of these runs."""
    areas = _areas(runs, read)
    listed: Columns = []
    raw: list[Buffer] = []
    if runs:
        sizes = _joined(list(map(_SIZES, runs)))
        _add(listed, raw, columns.SIZES, columns.pack_u32(sizes))
    # By the interpreter's own loops: most deliveries have none of these.
    for lengths_tag, blob_tag, of in (
        (columns.KEY_LENGTHS, columns.KEY_BLOB, list(map(_KEYS, runs))),
        (columns.HEADER_LENGTHS, columns.HEADER_BLOB, list(map(_HEADERS, runs))),
    ):
        if any(of):
            _add_blobs(listed, raw, (lengths_tag, blob_tag), of, runs, areas)
    if any(map(_PRIORITIES, runs)):
        parts = [run.priorities or _PRIORITY_DEFAULT * run.count for run in runs]
        _add(listed, raw, columns.PRIORITIES, b"".join(parts))
    for tag, counts, default in (
        (columns.ATTEMPTS, list(map(_ATTEMPTS, runs)), _ONE),
        (columns.FAILURES, list(map(_FAILURES, runs)), _ZERO),
    ):
        if any(counts):
            filled = [
                default * run.count if one is None else one
                for one, run in zip(counts, runs, strict=True)
            ]
            _add(listed, raw, tag, columns.pack_u32(_joined(filled)))
    dead_letters = []
    position = 0
    for run, area in zip(runs, areas, strict=True):
        raw.append(area[run.bodies_at : run.bodies_at + run.bodies_bytes])
        if run.dead_letter is not None:
            dead_letters.append((position, dead_letter_map(run.dead_letter, read)))
        position += run.count
    return listed, raw, tuple(dead_letters)


def _areas(runs: Sequence[Run], read: ReadArea) -> list[memoryview]:
    """The area of each run; neighbours often share an entry, which is then read once."""
    areas: list[memoryview] = []
    index, area = -1, memoryview(b"")
    for run in runs:
        if run.index != index and _lies_in_log(run):
            index, area = run.index, read(run.index)
        areas.append(area)
    return areas


def _add(listed: Columns, raw: list[Buffer], tag: int, column: bytes) -> None:
    listed.append((tag, len(column)))
    raw.append(column)


def _add_blobs(
    listed: Columns,
    raw: list[Buffer],
    tags: tuple[int, int],
    blobs: Sequence[BlobColumn | None],
    runs: Sequence[Run],
    areas: Sequence[memoryview],
) -> None:
    lengths: list[array[int]] = []
    slices: list[Buffer] = []
    blob_bytes = 0
    for blob, run, area in zip(blobs, runs, areas, strict=True):
        if blob is None:
            lengths.append(_ZERO * run.count)
            continue
        lengths.append(blob.lengths)
        slices.append(area[blob.blob_at : blob.blob_at + blob.blob_bytes])
        blob_bytes += blob.blob_bytes
    _add(listed, raw, tags[0], columns.pack_u32(_joined(lengths)))
    listed.append((tags[1], blob_bytes))
    raw.extend(slices)


def _joined(parts: Sequence[array[int]]) -> array[int]:
    if len(parts) == 1:
        return parts[0]
    joined = array("I")
    for part in parts:
        joined.extend(part)
    return joined


def dead_letter_map(letter: DeadLetter, read: ReadArea) -> dict[str, Any]:
    """A dead letter's record as the plain map of the wire."""

    def whole(text: Text | None) -> str | None:
        if not isinstance(text, TextPlace):
            return text
        return str(read(text.index)[text.at : text.at + text.size], "utf-8", "replace")

    return {
        "reason": Reason(letter.reason).name.lower(),
        "detail": whole(letter.detail),
        "description": whole(letter.description),
        "exception_type": letter.exception_type,
        "exception_text": whole(letter.exception_text),
        "stack": whole(letter.stack),
        "source": letter.source,
        "died_ms": letter.died_wall_ms,
        "history": [
            [attempt.consumer, AttemptOutcome(attempt.outcome).name.lower(), attempt.wall_ms]
            for attempt in letter.history
        ],
    }


def without_body(run: Run) -> Run:
    """The same messages, empty: nothing of them has to be read."""
    sizes = EMPTY_SIZES * run.count
    return run._replace(sizes=sizes, bodies_bytes=0, keys=None, headers=None)


def has_headers(run: Run, wanted: Mapping[str, str], read: ReadArea) -> bool:
    """Whether a message (a run of one) has all of these headers, which lie in the log."""
    blob = run.headers
    if blob is None:
        return not wanted
    area = read(run.index)
    try:
        headers = columns.decode_headers(area[blob.blob_at : blob.blob_at + blob.blob_bytes])
    except columns.ColumnError:
        return False  # A foreign client sent headers that cannot be decoded: they match nothing.
    return all(headers.get(name) == value for name, value in wanted.items())


def line_of(letter: DeadLetter, read: ReadArea) -> str:
    """The line of a dead letter's stack that names the place; the stack may lie in the log."""
    stack = letter.stack
    if isinstance(stack, TextPlace):
        stack = str(read(stack.index)[stack.at : stack.at + stack.size], "utf-8", "replace")
    return stack_line(stack)
