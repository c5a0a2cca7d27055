"""The form of every record in a snapshot: which fields, in which order, and how each is read back.

Owns the field tables. The form is a list per record in the order of its table. Any change of a form
is a new format, which goes by the version of the state that is written, and has a fixture in
`tests/machine/snapshots`. Bodies are handles and stay where they are. Must not know slices:
`snapshot_stream.py` does.
"""

import sys
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from fifo.machine import spec, user_form
from fifo.machine.state import tables
from fifo.machine.state.blocks import BLOCK_COLUMNS, EXTRA_COLUMNS, Block
from fifo.machine.state.positions import PositionMap, Positions, Ranges
from fifo.machine.state.records import (
    QUEUE_COUNTERS,
    Consumer,
    Hold,
    HoldLane,
    Notice,
    Producer,
    Queue,
    Record,
    RedriveState,
    Remembered,
    Session,
)
from fifo.machine.types import Attempt, DeadLetter, Text, TextPlace
from fifo.words.versions import KEY_RUNS

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


def plain(value: Any) -> Any:
    """Lists for every container; dicts as lists of pairs, in their own order."""
    if isinstance(value, Block):
        return write_block(value)
    if isinstance(value, PAIRS):
        return [[plain(key), plain(held)] for key, held in value.items()]
    if isinstance(value, _LISTED):
        return [plain(item) for item in value]
    return value


PAIRS = (dict, tables.Rows, PositionMap)
"""Containers that are written as pairs, a list of two for each row."""

CONTAINERS: tuple[type[Any], ...] = (*PAIRS, list, deque, tables.Line, Positions, Ranges)
"""Containers that are written item by item, and may be long."""

_LISTED: tuple[type[Any], ...] = (tuple, *CONTAINERS)


def same(value: Any) -> Any:
    """The value itself."""
    return value


def _tuple(value: Any) -> Any:
    return None if value is None else tuple(value)


class LongReader(NamedTuple):
    """The reading of a field that may be long: begin `empty`, `add` rows repeatedly, be `done`.

    In a `deep` one the last value of each row is a list that may itself be long. A row costs
    `weight` times what a record does.
    """

    empty: Callable[[], Any]
    add: Callable[[Any, list[Any]], None]
    done: Callable[[Any], Any] = same
    deep: bool = False
    weight: int = 1


Reader = Callable[[Any], Any] | LongReader
Form = tuple[Callable[[Any], Any], Reader]


def _add_tuples(found: Any, rows: list[Any]) -> None:
    found.extend(map(tuple, rows))


def _add_sets(found: Any, rows: list[Any]) -> None:
    for key, held in rows:
        found[key] = positions = Positions()
        positions.extend(held)


def _add_holes(holes: Positions, rows: list[Any]) -> None:
    for first, end in rows:
        holes.add_range(first, end)


def write_block(block: Block) -> list[Any]:
    """A block as its columns' bytes, little-endian."""
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
    block.is_plain = all(getattr(block, name) is None for name in EXTRA_COLUMNS)
    return block


def _add_blocks(blocks: dict[int, Block], rows: list[Any]) -> None:
    for key, row in rows:
        blocks[key] = _read_block(row)


def _read_letter(value: Any) -> DeadLetter | None:
    if value is None:
        return None
    letter = DeadLetter(*value)
    return letter._replace(
        description=_read_text(letter.description),
        exception_text=_read_text(letter.exception_text),
        stack=_read_text(letter.stack),
        detail=_read_text(letter.detail),
        history=tuple(Attempt(*line) for line in letter.history),
    )


def _read_text(value: Any) -> Text | None:
    return TextPlace(*value) if isinstance(value, list) else value


def _read_record(value: Any) -> Record:
    record = Record(*value)
    history = tuple(Attempt(*line) for line in record.history)
    letter = _read_letter(record.dead_letter)
    return record._replace(history=history, dead_letter=letter)


def _add_records(records: tables.Table[int, Record], rows: list[Any]) -> None:
    for position, row in rows:
        records[position] = _read_record(row)


def _write_lanes(lanes: dict[int, HoldLane]) -> list[Any]:
    """Leave out fields that are only kept for speed, as they differ after a restore: an empty lane,
    and how far a bound lags behind the first deadline."""
    return [
        [
            lane.lock_ms,
            lane.holds[0].checkout_ms + lane.lock_ms,
            sum([held.count for held in lane.holds]),
            lane.holds,
        ]
        for lane in lanes.values()
        if lane.holds
    ]


def _add_lanes(lanes: dict[int, HoldLane], rows: list[Any]) -> None:
    for lock_ms, bound_ms, _, holds in rows:
        lane = lanes[lock_ms] = HoldLane(lock_ms)
        lane.bound_ms = bound_ms
        lane.holds = [Hold(*hold) for hold in holds]


def _add_notices(notices: dict[int, Notice], rows: list[Any]) -> None:
    for number, (kind, consumer, ranges, label) in rows:
        notices[number] = Notice(kind, consumer, tuple(tuple(pair) for pair in ranges), label)


def _add_delayed(delayed: Any, rows: list[Any]) -> None:
    for position, entry in rows:
        delayed[position] = tuple(entry)


def _add_remembered(dedup: tables.Table[bytes, Remembered], rows: list[Any]) -> None:
    for name, held in rows:
        dedup[name] = Remembered(*held)


def _add_tags(tags: dict[tuple[int, str], int], rows: list[Any]) -> None:
    for key, number in rows:
        tags[tuple(key)] = number


def _add_pairs(found: Any, rows: list[Any]) -> None:
    for key, held in rows:
        found[key] = held


def _add_users(users: dict[str, user_form.UserRecord], rows: list[Any]) -> None:
    for name, row in rows:
        users[name] = user_form.read(row)


_DICT = LongReader(dict, dict.update)
_PAGED = LongReader(tables.Table, _add_pairs)
_TUPLES = LongReader(list, _add_tuples)
_TUPLES_AS_DEQUE = LongReader(deque, _add_tuples)
_POSITIONS = LongReader(Positions, Positions.extend)


def _read_redrive(value: Any) -> RedriveState | None:
    if value is None:
        return None
    redrive = RedriveState(*value)
    chosen = tuple((name, _tuple_if_list(wanted)) for name, wanted in redrive.filter)
    return redrive._replace(filter=chosen, ends=tuple(redrive.ends))


def _tuple_if_list(value: Any) -> Any:
    return tuple(_tuple_if_list(item) for item in value) if isinstance(value, list) else value


def _write_counters(counters: dict[str, int]) -> list[int]:
    return [counters[name] for name in QUEUE_COUNTERS]


def _read_counters(value: Any) -> dict[str, int]:
    return dict(zip(QUEUE_COUNTERS, value, strict=True))


def _write_spec(value: spec.QueueSpec) -> Any:
    return spec.plain(value)


def _read_spec(value: Any) -> spec.QueueSpec:
    return spec.queue_spec(dict(value))


def _all(names: str, read: Reader = same) -> dict[str, Form]:
    return dict.fromkeys(names.split(), (same, read))


OLDEST = 13
"""The oldest format that is read: that of 0.1.0."""

FORMAT = 14
"""The newest format. Before, a queue knew one position of each key that is out."""

FORMS: dict[str, dict[str, Form]] = {
    "session": _all("number session_id user client address incarnation handle_key epochs")
    | _all("attached disconnected disconnected_ms lead_epoch producer next_notice use end_cause")
    | _all("timer_ms leaving")
    | _all("resend", _tuple)
    | _all("consumers gets", _DICT)
    | _all("tags", LongReader(dict, _add_tags))
    | _all("notices", LongReader(dict, _add_notices)),
    "consumer": _all("number session queue tag label implicit durable used_ms lock_ms")
    | _all("prefetch priority renewable renewals nack_backoff timeout_backoff explicit_credit")
    | _all("credit base suspicion lost_running arrival turn next_token held resolved_below")
    | _all("floor_ms floor_token leaving timer_ms user max_lock_ms")
    | _all("service_key", _tuple)
    | _all("taken", _TUPLES)
    | _all("late", _PAGED)
    | {"lanes": (_write_lanes, LongReader(dict, _add_lanes, deep=True))},
    "producer": _all("number name user used_ms timer_ms") | _all("queues", _DICT),
    "queue": _all("number name paused heads tails ready locked bytes turns active handover")
    | _all("purge_below used_ms timer_ms user deleted")
    | _all("redrive", _read_redrive)
    | _all("live", _DICT)
    | _all("busy_keys", _PAGED)
    | _all("runs", LongReader(tables.Table, _add_sets, deep=True))
    | _all("runners", _PAGED)
    | _all("consumers durables last_numbers", _DICT)
    | _all("dedup", LongReader(tables.Table, _add_remembered))
    | _all("expiry_of", _DICT)
    | _all("avoid_ms", _PAGED)
    | _all("delayed", LongReader(PositionMap, _add_delayed))
    | {"holes": (Ranges, LongReader(Positions, _add_holes))}
    | _all("returned blocking", _POSITIONS)
    | _all("avoided", LongReader(dict, _add_sets, deep=True))
    | _all("waiting", LongReader(tables.Table, _add_sets, deep=True))
    | _all("avoid_until dedup_order", LongReader(tables.Line, _add_tuples))
    | _all("records", LongReader(tables.Table, _add_records))
    | _all("blocks", LongReader(dict, _add_blocks, weight=16))
    | {
        "spec": (_write_spec, _read_spec),
        "counters": (_write_counters, _read_counters),
    },
}
"""By kind, the fields of its records in order: how each is made plain, and how it is read."""

_SINCE_14: dict[str, dict[str, Callable[[], Any]]] = {
    "queue": {"runs": tables.Table, "runners": tables.Table},
}
"""By kind, the fields that format 13 has not: how they are made where they are missing."""


def format_of(version: int) -> int:
    """The format in which a state of this version is written."""
    return FORMAT if version >= KEY_RUNS else OLDEST


def forms_of(number: int, kind: str) -> dict[str, Form]:
    """The fields of a kind in this format."""
    missing = missing_in(number, kind)
    return {name: form for name, form in FORMS[kind].items() if name not in missing}


def missing_in(number: int, kind: str) -> dict[str, Callable[[], Any]]:
    """The fields that a kind has not in this format, and how they begin."""
    return _SINCE_14.get(kind, {}) if number < FORMAT else {}


TYPES: dict[str, Any] = {
    "session": Session,
    "consumer": Consumer,
    "producer": Producer,
    "queue": Queue,
}

SCALAR_READERS: dict[str, Reader] = {
    "chores": _TUPLES_AS_DEQUE,
    "pending": _DICT,
    "resumes": _TUPLES,
    "gone_counters": _DICT,
    "users": LongReader(dict, _add_users),
    "unresumed": LongReader(list, list.extend),
}
