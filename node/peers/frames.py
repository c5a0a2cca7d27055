"""The peer wire: bytes in, messages out; messages in, bytes out. Sans-I/O.

Owns the frame format between members (raft.md 3.3), specified in `docs/protocol-peer.md`:
u32 header length, u32 raw length (little endian), a msgpack array as header, then raw bytes. The
header begins with the frame's type; every field has a type and a range, and anything else is a
`FrameInvalid`, after which the connection is closed. A change of any frame raises
`PROTOCOL_NEWEST`; `fifo/words/versions.py` says from when on that is used. No frame can carry code,
a pickle or a command to be forwarded.
"""

from __future__ import annotations

import struct
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgpack

from node.journal import limits as journal_limits
from node.journal.errors import NodeError
from node.peers import limits
from node.peers.message import SAME_VERSION, known_command, known_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from node.peers.message import Message

PROTOCOL_OLDEST: Final = 4
"""The protocol of 0.1.0, whose members do not say what they can."""

PROTOCOL_NEWEST: Final = 5
"""The protocol in which every member says it, by `versions`."""

LENGTHS: Final = struct.Struct("<II")
UINT_MAX: Final = 2**62
"""Terms, indexes and rounds stay far below; a larger one is a mistake or an attack."""

SHOWN_CHARACTERS_MAX: Final = 60
"""Characters of a refused value that are quoted: enough to recognize it in a log."""

Bytes = bytes | bytearray | memoryview


class FrameInvalid(NodeError):
    """Bytes that are no frame, or a frame that no correct peer sends."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"frame refused: {problem}; {SAME_VERSION}, and let no other program reach the "
            "peer port"
        )


def _uint(value: object) -> bool:
    return type(value) is int and 0 <= value < UINT_MAX


def _bool(value: object) -> bool:
    return type(value) is bool


def _name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value.encode()) <= journal_limits.NODE_NAME_BYTES_MAX


def _name_or_none(value: object) -> bool:
    return value == "" or _name(value)


def _address(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value.encode()) <= limits.ADDRESS_BYTES_MAX


def _configuration(value: object) -> bool:
    return type(value) is bytes and len(value) <= limits.CONFIGURATION_BYTES_MAX


def _uints(value: object) -> bool:
    if type(value) is not list or len(value) > limits.BATCH_ENTRIES_MAX:
        return False
    return not value or (
        set(map(type, value)) == {int} and min(value) >= 0 and max(value) < UINT_MAX
    )


def _label(value: object) -> bool:
    return isinstance(value, str) and len(value.encode()) <= limits.LABEL_BYTES_MAX


def _ranges(value: object) -> bool:
    """Whether it is a list of a part's name, the lowest and the highest version of it."""
    return (
        type(value) is list
        and len(value) <= limits.PARTS_MAX
        and all(
            type(one) is list
            and len(one) == 3
            and _name(one[0])
            and _uint(one[1])
            and _uint(one[2])
            and one[1] <= one[2]
            for one in value
        )
    )


def _reason(value: object) -> bool:
    return isinstance(value, str) and len(value.encode()) <= limits.REASON_BYTES_MAX


def _id_or_none(value: object) -> bool:
    return type(value) is bytes and len(value) in (0, JOURNAL_ID_BYTES)


def _rows(value: object) -> bool:
    """Whether it is a list of what is known of a member's journal: name, id, opens, id of the open,
    ids of journals before."""
    return (
        type(value) is list
        and len(value) <= limits.ROWS_MAX
        and all(
            type(row) is list
            and len(row) == 5
            and _name(row[0])
            and _id_or_none(row[1])
            and _uint(row[2])
            and _id_or_none(row[3])
            and type(row[4]) is list
            and len(row[4]) <= limits.FORMER_MAX
            and all(map(_id_or_none, row[4]))
            for row in value
        )
    )


def _opens(value: object) -> bool:
    """Whether it is a list of members and the id of the open of each."""
    return (
        type(value) is list
        and len(value) <= limits.ROWS_MAX
        and all(
            type(row) is list
            and len(row) == 2
            and _name(row[0])
            and type(row[1]) is bytes
            and len(row[1]) == JOURNAL_ID_BYTES
            for row in value
        )
    )


def _sized(size: int) -> Callable[[object], bool]:
    return lambda value: type(value) is bytes and len(value) == size


JOURNAL_ID_BYTES: Final = 16
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
INCARNATION_BYTES: Final = 16
SNAPSHOT_DIGEST_BYTES: Final = 32
_nonce, _proof, _incarnation = _sized(NONCE_BYTES), _sized(PROOF_BYTES), _sized(INCARNATION_BYTES)

Fields = tuple[tuple[str, "Callable[[object], bool]"], ...]

_SNAPSHOT: Fields = (("term", _uint), ("index", _uint), ("entry_term", _uint))
"""First fields of every frame about a snapshot; with the digest of the offer they name it."""

_APPEND: Fields = (
    ("term", _uint),
    ("commit_index", _uint),
    ("prevLogIdx", _uint),
    ("prevLogTerm", _uint),
    ("round", _uint),
    ("terms", _uints),
    ("sizes", _uints),
)

PROTOCOL_OF_CHANGES: Final = 5
"""The protocol from which on members may change while they run: nodes that are no members are
heard, and either of a pair dials."""

TOLD_TYPES: Final = frozenset(
    {
        *("versions", "journal", "verdict", "ask", "members", "about", "entry_wanted"),
        *("entry_found", "skipped", "note", "synced", "doubted", "rechecked"),
    }
)
"""Frames of protocol 5 that are sent to members that know it alone, whichever is in use."""

HANDSHAKE_TYPES: Final = frozenset({"hello", "challenge", "proof", "welcome"})
"""Frames of a connection that is not authenticated yet, and of no other."""

FORMATS: Final[dict[str, tuple[int, Fields]]] = {
    "hello": (
        1,
        (
            ("version", _uint),
            ("cluster_id", _sized(16)),
            ("from", _name),
            ("to", _name_or_none),
            ("incarnation", _incarnation),
            ("nonce", _nonce),
        ),
    ),
    "challenge": (2, (("incarnation", _incarnation), ("nonce", _nonce))),
    "proof": (3, (("proof", _proof),)),
    "welcome": (4, (("proof", _proof),)),
    "keepalive": (8, ()),
    "versions": (9, (("release", _label), ("ranges", _ranges))),
    "journal": (
        10,
        (
            ("journal", _sized(JOURNAL_ID_BYTES)),
            ("opens", _uint),
            ("open_id", _sized(JOURNAL_ID_BYTES)),
            ("state", _uint),
            ("term", _uint),
            ("index", _uint),
            ("rows", _rows),
            ("connected", _opens),
        ),
    ),
    "verdict": (
        11,
        (
            ("kind", _uint),
            ("journal", _sized(JOURNAL_ID_BYTES)),
            ("open_id", _sized(JOURNAL_ID_BYTES)),
            ("reason", _reason),
        ),
    ),
    "ask": (12, ()),
    "members": (13, (("reason", _reason), ("configuration", _configuration))),
    "about": (14, (("peer", _address), ("client", _address), ("http", _address))),
    "append_entries": (16, _APPEND),
    "next_node_idx": (
        17,
        (
            ("term", _uint),
            ("round", _uint),
            ("next_node_idx", _uint),
            ("reset", _bool),
            ("success", _bool),
            ("counted", _bool),
        ),
    ),
    "request_vote": (
        18,
        (
            ("term", _uint),
            ("last_log_index", _uint),
            ("last_log_term", _uint),
            ("transfer", _bool),
        ),
    ),
    "response_vote": (19, (("term", _uint),)),
    "pre_vote": (
        20,
        (
            ("term", _uint),
            ("number", _uint),
            ("last_log_index", _uint),
            ("last_log_term", _uint),
        ),
    ),
    "pre_vote_answer": (21, (("term", _uint), ("number", _uint), ("granted", _bool))),
    "timeout_now": (22, (("term", _uint),)),
    "room": (
        23,
        (
            ("term", _uint),
            ("free_bytes", _uint),
            ("low_bytes", _uint),
            ("held_bytes", _uint),
            ("high_bytes", _uint),
            ("sync_ms", _uint),
        ),
    ),
    "mark": (28, (("term", _uint), ("index", _uint), ("version", _uint), ("hash", _uint))),
    "differs": (29, (("term", _uint), ("index", _uint))),
    "state_wanted": (30, (("term", _uint), ("above", _uint))),
    "entry_wanted": (35, (("index", _uint), ("term", _uint))),
    "entry_found": (36, (("index", _uint), ("term", _uint))),
    "skipped": (
        37,
        (("term", _uint), ("index", _uint), ("checksum", _uint), ("by", _label)),
    ),
    "note": (38, (("term", _uint),)),
    "synced": (39, (("term", _uint), ("index", _uint))),
    "doubted": (40, (("term", _uint), ("index", _uint), ("whole", _bool))),
    "rechecked": (
        41,
        (("term", _uint), ("index", _uint), ("whole", _bool), ("verdict", _uint)),
    ),
    "term_ask": (32, (("number", _uint), ("above", _uint))),
    "term_report": (33, (("number", _uint), ("term", _uint), ("recovering", _bool))),
    "snapshot_offer": (
        24,
        (
            *_SNAPSHOT,
            ("previous_term", _uint),
            ("state_bytes", _uint),
            ("live_count", _uint),
            ("digest", _sized(SNAPSHOT_DIGEST_BYTES)),
        ),
    ),
    "snapshot_state": (25, (*_SNAPSHOT, ("offset", _uint))),
    "snapshot_entries": (
        26,
        (
            *_SNAPSHOT,
            ("first", _uint),
            ("indexes", _uints),
            ("terms", _uints),
            ("sizes", _uints),
        ),
    ),
    "snapshot_ack": (
        27,
        (
            *_SNAPSHOT,
            ("state_bytes", _uint),
            ("live_count", _uint),
            ("gap", _bool),
            ("done", _bool),
        ),
    ),
}
"""Every frame there is: type number and fields, in order."""

_RAW_FIELDS: Final = {
    "snapshot_state": "data",
    "entry_found": "data",
    "note": "data",
    "snapshot_offer": "members",
}
"""Frames whose raw bytes are a field. That of an offer is empty, and so a frame as it was in
protocol 4, in a cluster whose members have not changed."""

_PLAIN_KINDS: Final[dict[Callable[[object], bool], type]] = {_uint: int, _bool: bool}


def _plain(fields: Fields) -> tuple[type, ...] | None:
    """Types of the values of a frame that holds numbers and flags only, type number first: nearly
    all that are sent. None for the others."""
    kinds = [_PLAIN_KINDS.get(fits) for _, fits in fields]
    return None if None in kinds else (int, *filter(None, kinds))


_BY_NUMBER: Final = {
    number: (name, fields, ("type", *(field for field, _ in fields)), _plain(fields))
    for name, (number, fields) in FORMATS.items()
}
"""Every frame by its number: name, fields, keys of the message, types where they are plain."""

_NAMES: Final = {name: [field for field, _ in fields] for name, (_, fields) in FORMATS.items()}
_APPEND_NUMBERS: Final = itemgetter(*_NAMES["append_entries"][:5])
_COMMAND_OF, _TERM_OF = itemgetter(0), itemgetter(2)

_packer = msgpack.Packer()
_ENTRY_BYTES_MAX: Final = limits.ENTRY_BYTES_MAX + 1


def encode(message: Message) -> list[Bytes]:
    """The bytes of one message, as buffers to be written one after the other."""
    name = message["type"]
    number, fields = FORMATS[name]
    raw: list[Bytes] = []
    if name == "append_entries":
        entries = message["entries"]
        raw = list(map(_COMMAND_OF, entries))
        sizes = list(map(len, raw))
        values = [*_APPEND_NUMBERS(message), list(map(_TERM_OF, entries)), sizes]
        raw_bytes = sum(sizes)
    elif name == "snapshot_entries":
        entries = message["entries"]
        raw = [entry[0] for entry in entries]
        sizes = list(map(len, raw))
        values = [message[field] for field, _ in fields[:4]]
        values += [[entry[1] for entry in entries], [entry[2] for entry in entries], sizes]
        raw_bytes = sum(sizes)
    else:
        values = list(map(message.__getitem__, _NAMES[name]))
        field_name = _RAW_FIELDS.get(name)
        if field_name is not None and message[field_name]:
            raw = [message[field_name]]
        raw_bytes = sum(map(len, raw))
    if len(raw) > 1 and raw_bytes <= journal_limits.JOIN_BYTES * len(raw):
        raw = [b"".join(raw)]
    header = _packer.pack([number, *values])
    return [LENGTHS.pack(len(header), raw_bytes) + header, *raw]


def decode(header: Bytes, raw: memoryview) -> Message:
    """The message of one frame. Raises `FrameInvalid`."""
    try:
        values = msgpack.unpackb(header)
    except (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException) as error:
        raise FrameInvalid(f"the header is not msgpack ({error})") from error
    if type(values) is not list or not values or type(values[0]) is not int:
        raise FrameInvalid(
            f"the header must be an array that begins with a type, not {_shown(values)}"
        )
    known = _BY_NUMBER.get(values[0])
    if known is None:
        raise FrameInvalid(f"unknown frame type {_shown(values[0])}")
    name, fields, keys, plain = known
    # At once where it can be: a call for each number costs more than all else here.
    if plain == (*map(type, values),) and min(values) >= 0 and max(values) < UINT_MAX:
        message: Message = dict(zip(keys, values, strict=True))
        message["type"] = name
    else:
        message = _checked_fields(name, fields, values[1:])
    if name == "append_entries":
        _attach_entries(message, raw)
    elif name == "snapshot_entries":
        _attach_kept(message, raw)
    elif name in _RAW_FIELDS:
        message[_RAW_FIELDS[name]] = bytes(raw)
    elif len(raw):
        raise FrameInvalid(f"{name} carries {len(raw)} raw bytes, must carry none")
    return message


def _checked_fields(name: str, fields: Fields, values: list[Any]) -> Message:
    """The message of a frame, of whose values each has to fit."""
    if len(values) != len(fields):
        raise FrameInvalid(f"{name} has {len(values)} fields, must have {len(fields)}")
    message: Message = {"type": name}
    for (field, fits), value in zip(fields, values, strict=True):
        number = type(value) is int
        if not (0 <= value < UINT_MAX and fits is _uint if number else fits(value)):
            raise FrameInvalid(f"{name}.{field} is ill-typed or out of range: {_shown(value)}")
        message[field] = value
    return message


def _attach_entries(message: dict[str, Any], raw: memoryview) -> None:
    """Cut the raw bytes into entries. Their indexes follow from the previous one."""
    terms, sizes = message.pop("terms"), message.pop("sizes")
    if len(terms) != len(sizes) or sum(sizes) != len(raw):
        raise FrameInvalid(
            f"append_entries: {len(terms)} terms and {len(sizes)} sizes of {sum(sizes)} bytes "
            f"do not fit {len(raw)} raw bytes"
        )
    if sorted(bounds := [message["prevLogTerm"], *terms, message["term"]]) != bounds:
        raise FrameInvalid(f"append_entries: terms fall: {_shown(bounds)}")
    commands = _cut("append_entries", raw, sizes)
    indexes = count(message["prevLogIdx"] + 1)
    message["entries"] = list(zip(commands, indexes, terms, strict=False))


def _attach_kept(message: dict[str, Any], raw: memoryview) -> None:
    """Cut the raw bytes into kept entries, whose indexes have gaps."""
    indexes, terms = message.pop("indexes"), message.pop("terms")
    sizes = message.pop("sizes")
    if not len(indexes) == len(terms) == len(sizes) or sum(sizes) != len(raw):
        raise FrameInvalid(
            f"snapshot_entries: {len(indexes)} indexes, {len(terms)} terms and {len(sizes)} "
            f"sizes of {sum(sizes)} bytes do not fit {len(raw)} raw bytes"
        )
    commands = _cut("snapshot_entries", raw, sizes)
    message["entries"] = list(zip(commands, indexes, terms, strict=True))


def _cut(name: str, raw: memoryview, sizes: list[int]) -> Sequence[bytes]:
    """The commands that lie end to end in `raw`, whose sizes add up to it."""
    if not sizes:
        return ()
    for size in (min(sizes), max(sizes)):
        if not 1 <= size <= _ENTRY_BYTES_MAX:
            raise FrameInvalid(
                f"{name}: an entry of {size} bytes, must have 1 to {_ENTRY_BYTES_MAX}"
            )
    commands: Sequence[bytes] = (bytes(raw),)
    if len(sizes) > 1:
        # One call for all of them; not `struct.unpack`, which would keep the formats.
        commands = struct.Struct("%ds" * len(sizes) % tuple(sizes)).unpack(raw)
    if not known_commands(commands):
        unknown = next(one for one in commands if not known_command(one))
        raise FrameInvalid(f"{name}: an entry of unknown type {_shown(unknown[:1])}")
    return commands


def _shown(value: object) -> str:
    """Quote a received value, however long it is."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "..."


class Decoder:
    """Received bytes to messages, for one connection; discarded with it.

    The owner receives into `buffer()` and tells `received(count)`, which yields the messages
    that are complete. Lengths are checked before anything is allocated for them.
    """

    def __init__(self) -> None:
        self._base = bytearray(limits.RECEIVE_BYTES)
        self._buffer = self._base
        self._start = 0
        self._end = 0
        self.trusted = False

    def buffer(self, sizehint: int = 0) -> memoryview:
        """Where the next bytes belong; never empty. `sizehint`, which asyncio gives, is not asked
        for."""
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> Iterator[Message]:
        """Take `count` bytes that were written into `buffer()`. Raises `FrameInvalid`."""
        self._end += count
        while True:
            have = self._end - self._start
            need = LENGTHS.size
            if have >= need:
                header_bytes, raw_bytes = LENGTHS.unpack_from(self._buffer, self._start)
                whole = header_bytes + raw_bytes
                limit = limits.FRAME_BYTES_MAX if self.trusted else limits.HANDSHAKE_BYTES_MAX
                if header_bytes > limits.HEADER_BYTES_MAX or whole > limit:
                    raise FrameInvalid(
                        f"a frame of {header_bytes} + {raw_bytes} bytes, at most {limit} are "
                        f"allowed, {limits.HEADER_BYTES_MAX} of them before the raw bytes"
                    )
                need += whole
                if have >= need:
                    view = memoryview(self._buffer)[self._start : self._start + need]
                    cut = LENGTHS.size + header_bytes
                    self._start += need
                    yield decode(view[LENGTHS.size : cut], view[cut:])
                    continue
            if have:
                self._make_room(need)
            else:
                self._buffer, self._start, self._end = self._base, 0, 0
            return

    def _make_room(self, need: int) -> None:
        """Keep the incomplete frame, in a buffer where the whole of it fits."""
        rest = self._end - self._start
        if need > len(self._base):
            if need != len(self._buffer) or self._start:
                # A buffer of exactly this frame: nothing of the next one can land in it.
                larger = bytearray(need)
                larger[:rest] = memoryview(self._buffer)[self._start : self._end]
                self._buffer, self._start, self._end = larger, 0, rest
            return
        if self._buffer is not self._base or self._start + need > len(self._base):
            moved = bytes(memoryview(self._buffer)[self._start : self._end])
            self._buffer = self._base
            self._buffer[:rest] = moved
            self._start, self._end = 0, rest
