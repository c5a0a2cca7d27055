"""The state as canonical bytes and back: versioned, and equal states write equal bytes.

Owns the form of every record. Indexes are not written but built again. The form is a list per
record in the order of the field tables here; a field is only ever added at the end of its table,
together with a new `FORMAT`. Bodies are handles and stay where they are.
"""

import sys
from array import array
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from sortedcontainers import SortedDict, SortedList

from fifo.machine import codec, spec
from fifo.machine.blocks import BLOCK_COLUMNS, Block
from fifo.machine.state import (
    KINDS,
    QUEUE_COUNTERS,
    SCALARS,
    Consumer,
    Frozen,
    Hold,
    HoldLane,
    Notice,
    Producer,
    Queue,
    Record,
    RedriveState,
    Session,
    State,
)
from fifo.machine.types import Attempt, DeadLetter

MAGIC = "fifo machine"
FORMAT = 1

_LITTLE = sys.byteorder == "little"
_TYPECODES = {
    name: values.typecode
    for name, values in ((name, getattr(Block(0), name)) for name in BLOCK_COLUMNS)
    if isinstance(values, array)
} | {
    "keys_at": "I",
    "key_lengths": "I",
    "headers_at": "I",
    "header_lengths": "I",
    "expires": "Q",
    "key_hashes": "Q",
}

Form = tuple[Callable[[Any], Any], Callable[[Any], Any]]


class SnapshotError(ValueError):
    """Bytes that are not a snapshot that this code can read."""


def encode(view: State | Frozen) -> bytes:
    """The canonical bytes of a state, or of a frozen view of one."""
    if isinstance(view, State):
        scalars = [_plain(getattr(view, name)) for name in SCALARS]
        tables = {kind: list(getattr(view, table).values()) for kind, table in KINDS.items()}
    else:
        scalars = [_plain(view.scalars[name]) for name in SCALARS]
        tables = {kind: view.items(kind) for kind in KINDS}
    written = [
        [
            [write(getattr(item, name)) for name, (write, _) in _FORMS[kind].items()]
            for item in items
        ]
        for kind, items in tables.items()
    ]
    return codec.encode([MAGIC, FORMAT, scalars, written])


def _row(kind: str, item: Any) -> list[Any]:
    return [write(getattr(item, name)) for name, (write, _) in _FORMS[kind].items()]


def digest(view: State | Frozen) -> bytes:
    """A hash of the canonical bytes."""
    return blake2b(encode(view), digest_size=32).digest()


def decode(data: bytes) -> State:
    """The state that `data` is the snapshot of. Raises `SnapshotError`."""
    try:
        magic, version, scalars, written = codec.decode(data)
    except (codec.CodecError, TypeError, ValueError) as error:
        raise SnapshotError(f"not a snapshot: {error}") from None
    if magic != MAGIC:
        raise SnapshotError("not a snapshot of a queue machine")
    if version != FORMAT:
        raise SnapshotError(f"snapshot format {version} is not known here")
    state = State()
    for name, value in zip(SCALARS, scalars, strict=True):
        setattr(state, name, _SCALAR_READERS.get(name, _same)(value))
    for (kind, table), rows in zip(KINDS.items(), written, strict=True):
        items = getattr(state, table)
        for row in rows:
            item = object.__new__(_TYPES[kind])
            for (name, (_, read)), value in zip(_FORMS[kind].items(), row, strict=True):
                setattr(item, name, read(value))
            item.generation = state.generation
            items[item.number] = item
    _index(state)
    return state


def _index(state: State) -> None:
    """Build again what is derived from the records."""
    state.session_ids = {
        session.session_id: session.number
        for session in state.sessions.values()
        if session.end_cause is None
    }
    state.queue_names = {queue.name: queue.number for queue in state.queues.values()}
    for producer in state.producers.values():
        if producer.name is not None:
            state.producer_names[producer.name] = producer.number
    for queue in state.queues.values():
        queue.has_priorities = queue.spec.has_priorities
        queue.delays = SortedList((due_ms, at) for at, (due_ms, _) in queue.delayed.items())
        queue.expiries = SortedList((bound, key) for key, bound in queue.expiry_of.items())
        queue.service = []
    for consumer in state.consumers.values():
        if consumer.service_key is not None:
            state.queues[consumer.queue].service.append(consumer.service_key)
        for lane in consumer.lanes.values():
            state.lock_index.add((lane.bound_ms, consumer.number, lane.lock_ms))
    for queue in state.queues.values():
        queue.service.sort()
    for table in KINDS.values():
        for item in getattr(state, table).values():
            if item.timer_ms is not None:
                state.timers.add((item.timer_ms, item.kind, item.number))


def _plain(value: Any) -> Any:
    """Lists for every container; dicts as lists of pairs, in their own order."""
    if isinstance(value, dict):
        return [[_plain(key), _plain(held)] for key, held in value.items()]
    if isinstance(value, (list, tuple, deque, SortedList)):
        return [_plain(item) for item in value]
    return value


def _same(value: Any) -> Any:
    return value


def _tuple(value: Any) -> Any:
    return None if value is None else tuple(value)


def _tuples(value: Any) -> Any:
    return [tuple(item) for item in value]


def _dict(value: Any) -> Any:
    return {key: held for key, held in value}  # noqa: C416  # pairs are lists of two, not tuples


def _sorted(value: Any) -> Any:
    return SortedList(value)


def _sorted_tuples(value: Any) -> Any:
    return SortedList(tuple(item) for item in value)


def _sorted_by_key(value: Any) -> Any:
    return {key: SortedList(held) for key, held in value}


def _deque_of_tuples(value: Any) -> Any:
    return deque(tuple(item) for item in value)


def _write_block(block: Block) -> list[Any]:
    row: list[Any] = []
    for name in BLOCK_COLUMNS:
        column = getattr(block, name)
        if isinstance(column, array) and not _LITTLE:
            column = column[:]
            column.byteswap()
        row.append(None if column is None else bytes(column))
    return row


def _read_block(row: list[Any]) -> Block:
    block = Block(0)
    for name, value in zip(BLOCK_COLUMNS, row, strict=True):
        column: Any = None
        if value is not None and name == "priorities":
            column = bytearray(value)
        elif value is not None:
            column = array(_TYPECODES[name])
            column.frombytes(value)
            if not _LITTLE:
                column.byteswap()
        setattr(block, name, column)
    return block


def _write_blocks(blocks: dict[int, Block]) -> list[Any]:
    return [[key, _write_block(block)] for key, block in blocks.items()]


def _read_blocks(value: Any) -> dict[int, Block]:
    return {key: _read_block(row) for key, row in value}


def _read_letter(value: Any) -> DeadLetter | None:
    if value is None:
        return None
    letter = DeadLetter(*value)
    history = tuple(Attempt(*line) for line in letter.history)
    return letter._replace(history=history, stack_place=_tuple(letter.stack_place))


def _read_record(value: Any) -> Record:
    record = Record(*value)
    history = tuple(Attempt(*line) for line in record.history)
    letter = _read_letter(record.dead_letter)
    return record._replace(history=history, dead_letter=letter)


def _read_records(value: Any) -> dict[int, Record]:
    return {position: _read_record(row) for position, row in value}


def _write_lanes(lanes: dict[int, HoldLane]) -> list[Any]:
    return [
        [lane.lock_ms, lane.bound_ms, lane.held, [list(held) for held in lane.holds]]
        for lane in lanes.values()
    ]


def _read_lanes(value: Any) -> dict[int, HoldLane]:
    lanes = {}
    for lock_ms, bound_ms, held, holds in value:
        lane = lanes[lock_ms] = HoldLane(lock_ms)
        lane.bound_ms, lane.held = bound_ms, held
        lane.holds = [Hold(*hold) for hold in holds]
    return lanes


def _read_notices(value: Any) -> dict[int, Notice]:
    return {
        number: Notice(kind, consumer, tuple(tuple(pair) for pair in ranges))
        for number, (kind, consumer, ranges) in value
    }


def _read_delayed(value: Any) -> Any:
    return SortedDict((position, tuple(entry)) for position, entry in value)


def _read_redrive(value: Any) -> RedriveState | None:
    if value is None:
        return None
    redrive = RedriveState(*value)
    chosen = tuple((name, _tuple_if_list(wanted)) for name, wanted in redrive.filter)
    return redrive._replace(filter=chosen, ends=tuple(redrive.ends))


def _tuple_if_list(value: Any) -> Any:
    return tuple(_tuple_if_list(item) for item in value) if isinstance(value, list) else value


def _tuple_keys(value: Any) -> Any:
    return {tuple(key): held for key, held in value}


def _write_counters(counters: dict[str, int]) -> list[int]:
    return [counters[name] for name in QUEUE_COUNTERS]


def _read_counters(value: Any) -> dict[str, int]:
    return dict(zip(QUEUE_COUNTERS, value, strict=True))


def _write_spec(value: spec.QueueSpec) -> list[Any]:
    return _plain(spec.plain(value))  # type: ignore[no-any-return]  # a dict becomes a list


def _read_spec(value: Any) -> spec.QueueSpec:
    return spec.queue_spec(dict(value))


def _all(names: str, read: Callable[[Any], Any] = _same) -> dict[str, Form]:
    return dict.fromkeys(names.split(), (_plain, read))


_FORMS: dict[str, dict[str, Form]] = {
    "session": _all("number session_id user address incarnation epochs attached disconnected")
    | _all("disconnected_ms lead_epoch producer next_notice end_cause timer_ms")
    | _all("consumers gets", _dict)
    | _all("tags", _tuple_keys)
    | _all("notices", _read_notices),
    "consumer": _all("number session queue tag implicit durable used_ms lock_ms max_lock_ms")
    | _all("prefetch priority renewable nack_backoff timeout_backoff explicit_credit credit")
    | _all("base suspicion arrival turn next_token held resolved_below floor_ms floor_token")
    | _all("leaving timer_ms")
    | _all("service_key", _tuple)
    | _all("taken", _tuples)
    | _all("late", _dict)
    | {"lanes": (_write_lanes, _read_lanes)},
    "producer": _all("number name used_ms timer_ms") | _all("queues", _dict),
    "queue": _all("number name paused heads tails ready locked bytes turns active handover")
    | _all("purge_below used_ms timer_ms")
    | _all("redrive", _read_redrive)
    | _all("live busy_keys consumers durables last_numbers dedup expiry_of", _dict)
    | _all("delayed", _read_delayed)
    | _all("holes", _sorted_tuples)
    | _all("returned blocking", _sorted)
    | _all("avoided waiting", _sorted_by_key)
    | _all("avoid_until dedup_order", _deque_of_tuples)
    | {
        "spec": (_write_spec, _read_spec),
        "records": (_plain, _read_records),
        "blocks": (_write_blocks, _read_blocks),
        "counters": (_write_counters, _read_counters),
    },
}

DERIVED = {"queue": ("service", "delays", "expiries", "has_priorities")}
"""Fields that a restore builds again from the others."""

_TYPES: dict[str, Any] = {
    "session": Session,
    "consumer": Consumer,
    "producer": Producer,
    "queue": Queue,
}

_SCALAR_READERS: dict[str, Callable[[Any], Any]] = {
    "chores": _deque_of_tuples,
    "pending": _dict,
}
