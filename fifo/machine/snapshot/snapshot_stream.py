"""A snapshot in pieces: written and read a bounded step at a time, so that no loop waits for it.

Owns the order in which a state is walked. The bytes are those of the forms in `snapshot_layout.py`,
whatever the sizes of the pieces. Each `next` on a generator here is one step, of a few milliseconds
at the most; between two steps the machine may go on, because what is walked is a frozen view.
"""

from collections.abc import Generator, Iterator
from itertools import chain
from typing import Any, Protocol

from sortedcontainers import SortedList

from fifo.machine.snapshot import codec
from fifo.machine.snapshot.snapshot_layout import (
    CONTAINERS,
    FORMAT,
    OLDEST,
    PAIRS,
    SCALAR_READERS,
    TYPES,
    Form,
    LongReader,
    Reader,
    format_of,
    forms_of,
    missing_in,
    plain,
    same,
)
from fifo.machine.state.positions import Positions
from fifo.machine.state.records import KINDS, SCALARS, VERSION, Queue, State

MAGIC = "fifo machine"

PIECE_BYTES = 64 << 10
"""A piece is handed out from this size on: large enough to write, small enough to send."""

STEP_ITEMS = 256
"""Records, holds or ranges in one step: at some 10 microseconds each, three milliseconds."""

HEAVY_ITEMS = 1_024
"""An item whose tables hold more is kept by the view and walked in steps; others at once."""


class SnapshotError(ValueError):
    """Bytes that are not a snapshot that this code can read."""


class View(Protocol):
    """A state that does not change while it is walked, but for what `keep` was not asked for."""

    @property
    def scalars(self) -> dict[str, Any]:
        """The fields of the state beside its tables."""

    def numbers(self, kind: str) -> list[int]:
        """The items of a kind."""

    def item(self, kind: str, number: int) -> Any:
        """The item with this number; it may change after this step."""

    def keep(self, item: Any) -> Any:
        """The same item, which will not."""


class Still:
    """A state as a view of itself, for when nothing happens meanwhile."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.scalars = {name: getattr(state, name) for name in SCALARS}

    def numbers(self, kind: str) -> list[int]:
        """The items of a kind."""
        return list(getattr(self._state, KINDS[kind]))

    def item(self, kind: str, number: int) -> Any:
        """The item with this number."""
        return getattr(self._state, KINDS[kind])[number]

    def keep(self, item: Any) -> Any:
        """The same item."""
        return item


def is_heavy(item: Any) -> bool:
    """Whether an item is too much for one step."""
    count = 0
    for slot in type(item).__slots__:
        value: Any = getattr(item, slot, None)
        if isinstance(value, CONTAINERS):
            count += len(value)
            if count > HEAVY_ITEMS:
                return True
            if slot in ("avoided", "waiting", "runs"):
                count += sum(map(len, value.values()))
            elif slot == "lanes":
                count += sum(len(lane.holds) for lane in value.values())
            elif slot == "blocks":
                count += len(value) * 64
    return count > HEAVY_ITEMS


# --- writing --------------------------------------------------------------------------------------


def write(view: View) -> Iterator[bytes]:
    """The canonical bytes of a view, in order; empty pieces mean: a step was made."""
    out = bytearray()
    codec.write_list(out, 4)
    codec.write(out, MAGIC)
    number_of_form = format_of(view.scalars["version"])
    codec.write(out, number_of_form)
    codec.write_list(out, len(SCALARS))
    for name in SCALARS:
        yield from _piece(out, _parts(out, view.scalars[name]))
    codec.write_list(out, len(KINDS))
    for kind in KINDS:
        forms = forms_of(number_of_form, kind)
        numbers = view.numbers(kind)
        codec.write_list(out, len(numbers))
        for count, number in enumerate(numbers):
            item = view.item(kind, number)
            if is_heavy(item):
                yield from _piece(out, _fields(out, forms, view.keep(item)))
            else:
                for _ in _fields(out, forms, item):
                    pass
                if len(out) >= PIECE_BYTES or count % (STEP_ITEMS // 8) == 0:
                    yield bytes(out)
                    out.clear()
    yield bytes(out)


def _piece(out: bytearray, steps: Iterator[None]) -> Iterator[bytes]:
    for _ in steps:
        if len(out) >= PIECE_BYTES:
            yield bytes(out)
            out.clear()
        else:
            yield b""


def _fields(out: bytearray, forms: dict[str, Form], item: Any) -> Iterator[None]:
    codec.write_list(out, len(forms))
    for name, (written, _) in forms.items():
        yield from _parts(out, written(getattr(item, name)))


def _parts(out: bytearray, value: Any) -> Iterator[None]:
    """Write a value; a step ends after some of its items. Tuples are short, and taken whole."""
    if not isinstance(value, CONTAINERS):
        codec.write(out, plain(value))
        return
    codec.write_list(out, len(value))
    pairs = isinstance(value, PAIRS)
    for count, item in enumerate(value.items() if pairs else value):
        held = item
        if pairs:
            codec.write_list(out, 2)
            codec.write(out, plain(item[0]))
            held = item[1]
        if isinstance(held, CONTAINERS):
            yield from _parts(out, held)
        else:
            codec.write(out, plain(held))
        if len(out) >= PIECE_BYTES or count % STEP_ITEMS == STEP_ITEMS - 1:
            yield


# --- reading --------------------------------------------------------------------------------------


class _Source:
    """Values out of chunks that begin and end anywhere."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._data = b""
        self._at = 0

    def value(self) -> Any:
        """The next value, whole."""
        while True:
            try:
                value, self._at = codec.read(self._data, self._at)
                return value
            except codec.CutOff:
                self._more()

    def list_header(self) -> int:
        """The length of the list that begins here."""
        while True:
            try:
                count, self._at = codec.read_list(self._data, self._at)
                return count
            except codec.CutOff:
                self._more()

    def end(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._data) or any(self._chunks):
            raise SnapshotError("not a snapshot: surplus bytes")

    def _more(self) -> None:
        """At least as much again as is left, so that a long value is not tried too often."""
        parts = [self._data[self._at :]]
        wanted = max(len(parts[0]), 1)
        while wanted > 0:
            chunk = next(self._chunks, None)
            if chunk is None:
                if len(parts) == 1:
                    raise SnapshotError("not a snapshot: cut off or damaged")
                break
            parts.append(chunk)
            wanted -= len(chunk)
        self._data, self._at = b"".join(parts), 0


def read(chunks: Iterator[bytes]) -> Generator[None, None, State]:
    """Read a state back; its value is what the generator returns. Raises `SnapshotError`."""
    try:
        return (yield from _read(_Source(chunks)))
    except (codec.CodecError, TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"not a snapshot: {error}") from None


def _read(source: _Source) -> Generator[None, None, State]:
    if source.list_header() != 4 or source.value() != MAGIC:
        raise SnapshotError("not a snapshot of a queue machine")
    found = source.value()
    if type(found) is not int or not OLDEST <= found <= FORMAT:
        raise SnapshotError(f"snapshot format {found}; this program reads {OLDEST} to {FORMAT}")
    state = State()
    if source.list_header() != len(SCALARS):
        raise SnapshotError("not a snapshot: unexpected fields")
    for name in SCALARS:
        setattr(state, name, (yield from _field(source, SCALAR_READERS.get(name, same))))
    if type(state.version) is not int or state.version > VERSION:
        # Read as if it were this one's, it would be applied to otherwise than on the other nodes.
        raise SnapshotError(
            f"a state of machine version {state.version}; this program knows versions up to"
            f" {VERSION}: use the newer program on every node"
        )
    if source.list_header() != len(KINDS):
        raise SnapshotError("not a snapshot: unexpected tables")
    for kind, table in KINDS.items():
        items = getattr(state, table)
        for count in range(source.list_header()):
            item = yield from _item(source, kind, found)
            item.generation = state.generation
            items[item.number] = item
            if count % (STEP_ITEMS // 8) == 0:
                yield
    source.end()
    yield from _index(state)
    return state


def _item(source: _Source, kind: str, number_of_form: int) -> Generator[None, None, Any]:
    item = object.__new__(TYPES[kind])
    forms = forms_of(number_of_form, kind)
    if source.list_header() != len(forms):
        raise SnapshotError(f"not a snapshot: unexpected fields in a {kind}")
    for name, (_, reader) in forms.items():
        setattr(item, name, (yield from _field(source, reader)))
    for name, empty in missing_in(number_of_form, kind).items():
        setattr(item, name, empty())
    return item


def _field(source: _Source, reader: Reader) -> Generator[None, None, Any]:
    if not isinstance(reader, LongReader):
        return reader(source.value())
    found = reader.empty()
    rows: list[Any] = []
    for _ in range(source.list_header()):
        rows.append((yield from _deep_row(source)) if reader.deep else source.value())
        if len(rows) * reader.weight >= STEP_ITEMS:
            reader.add(found, rows)
            rows = []
            yield
    reader.add(found, rows)
    return reader.done(found)


def _deep_row(source: _Source) -> Generator[None, None, list[Any]]:
    row = [source.value() for _ in range(source.list_header() - 1)]
    last = []
    for count in range(source.list_header()):
        last.append(source.value())
        if count % STEP_ITEMS == STEP_ITEMS - 1:
            yield
    return [*row, last]


def _index(state: State) -> Generator[None, None, None]:
    """Build again what is derived from the records."""
    for table in KINDS.values():
        for count, item in enumerate(getattr(state, table).values()):
            if not (isinstance(item, Queue) and item.deleted):
                state.note_owned(item, 1)
            if item.timer_ms is not None:
                state.timers.add((item.timer_ms, item.kind, item.number))
            if count % STEP_ITEMS == STEP_ITEMS - 1:
                yield
    for session in state.sessions.values():
        if session.end_cause is None:
            state.session_ids[session.session_id] = session.number
    for producer in state.producers.values():
        if producer.name is not None:
            state.producer_names[producer.name] = producer.number
    for queue in state.queues.values():
        if not queue.deleted:
            state.queue_names[queue.name] = queue.number
            state.note_dead_letter(queue.spec.dead_letter, 1)
        queue.has_priorities = queue.spec.has_priorities
        queue.front_lane = 0
        queue.expiries = SortedList((bound, key) for key, bound in queue.expiry_of.items())
        queue.service, queue.ranks, queue.subscribed = [], {}, 0
        queue.delays = SortedList()
        for count, (at, (due_ms, _)) in enumerate(queue.delayed.items()):
            queue.delays.add((due_ms, at))
            if count % STEP_ITEMS == STEP_ITEMS - 1:
                yield
        queue.in_line = Positions()
        for count, at in enumerate(chain.from_iterable(queue.waiting.values())):
            queue.in_line.add(at)
            if count % STEP_ITEMS == STEP_ITEMS - 1:
                yield
    yield
    for count, consumer in enumerate(state.consumers.values()):
        queue = state.queues[consumer.queue]
        queue.note_rank(consumer.priority, 1)
        queue.subscribed += not consumer.implicit
        if consumer.service_key is not None:
            queue.service.append(consumer.service_key)
        for lane in consumer.lanes.values():
            state.lock_index.add((lane.bound_ms, consumer.number, lane.lock_ms))
        if count % STEP_ITEMS == STEP_ITEMS - 1:
            yield
    for queue in state.queues.values():
        queue.service.sort()
