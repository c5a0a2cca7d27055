"""A reader of journal folders written from `docs/storage.md` alone.

Imports nothing of the project and not even its checksum package: where this and the project
disagree, one of the two or the page is wrong. Slow and plain on purpose.
"""

from __future__ import annotations

import hashlib
import struct


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


TABLE = _table()


def crc32c(content: bytes, start: int = 0) -> int:
    crc = start ^ 0xFFFFFFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Log:
    """Contents of a journal: entries as (command, index, term), term, vote, commit hint.

    Where snapshots stand for the beginning, `entries` begin after the older one, `state` is the
    newest one's, `index` its last entry, and `bodies` are the entries that it needs.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, int, int]] = []
        self.first = 1
        self.term = 0
        self.vote: str | None = None
        self.commit = 0
        self.synced = 0
        self.index = 0
        self.state = b""
        self.bodies: dict[int, tuple[bytes, int, int]] = {}


class Header:
    """The beginning of a file: four numbers, its size, the seed of its records."""

    def __init__(self, content: bytes, magic: bytes, cluster_id: bytes, node: str) -> None:
        fields = struct.unpack_from("<8sHHIQQQQ16sB", content)
        assert fields[0] == magic
        assert fields[1] in {1, 2}
        assert fields[3] == 0
        assert fields[8] == cluster_id
        assert content[65 : 65 + fields[9]].decode() == node
        self.size = fields[2]
        self.numbers = fields[4:8]
        assert self.size == 65 + fields[9] + 4
        (self.seed,) = struct.unpack_from("<I", content, self.size - 4)
        assert self.seed == crc32c(content[: self.size - 4])


Record = tuple[int, int, int, int, bytes]
"""(offset, kind, term, index, payload)"""


def read_record(content: bytes, offset: int, base: int, seed: int) -> Record:
    magic, kind, zero, size, position, term, index, crc = struct.unpack_from(
        "<2sBBIQQQI", content, offset
    )
    assert (magic, zero, position) == (b"\xf1\xf0", 0, base + offset)
    payload = content[offset + 36 : offset + 36 + size]
    assert len(payload) == size
    assert crc == crc32c(content[offset : offset + 32] + payload, seed)
    return offset, kind, term, index, payload


def read_records(content: bytes, offset: int, base: int, seed: int) -> list[Record]:
    found = []
    while offset < len(content):
        found.append(read_record(content, offset, base, seed))
        offset += 36 + len(found[-1][4])
    return found


Place = tuple[int, int, int, int]
"""(term, file, offset, size)"""


def read_places(payload: bytes) -> dict[int, Place]:
    count = len(payload) // 28
    indexes, terms, files, offsets, sizes = (
        struct.unpack_from(f"<{count}{code}", payload, count * before)
        for code, before in (("Q", 0), ("Q", 8), ("I", 16), ("I", 20), ("I", 24))
    )
    assert list(indexes) == sorted(set(indexes))
    return dict(zip(indexes, zip(terms, files, offsets, sizes, strict=True), strict=True))


class Snapshot:
    def __init__(self, name: str, content: bytes, cluster_id: bytes, node: str) -> None:
        header = Header(content, b"fifosnap", cluster_id, node)
        self.next_number, self.index, self.term, self.previous_term = header.numbers
        assert name == f"{self.index:020d}-{self.term:020d}.snapshot"
        self.state = b""
        self.places: dict[int, Place] = {}
        *pieces, end = read_records(content, header.size, 0, header.seed)
        for _, kind, _, index, payload in pieces:
            if kind == 6:
                assert index == len(self.state)
                self.state += payload
            else:
                assert kind == 7
                self.places |= read_places(payload)
        assert end[1] == 8
        state_bytes, live, self.position, restarts, digest = struct.unpack("<QQQQ32s", end[4])
        self.restarts = bool(restarts)
        assert (state_bytes, live) == (len(self.state), len(self.places))
        assert digest == hashlib.blake2b(self.state, digest_size=32).digest()


class Kept:
    def __init__(self, name: str, content: bytes, cluster_id: bytes, node: str) -> None:
        header = Header(content, b"fifokept", cluster_id, node)
        self.number, self.seed, self.content = header.numbers[0], header.seed, content
        assert header.numbers[1:] == (0, 0, 0)
        assert name == f"{self.number:010d}.kept"
        _, kind, _, _, payload = read_record(content, len(content) - 52, 0, header.seed)
        assert kind == 9
        places_at, count = struct.unpack("<QQ", payload)
        self.places: dict[int, Place] = {}
        for _, kind, _, _, payload in read_records(content, places_at, 0, header.seed)[:-1]:
            assert kind == 7
            self.places |= read_places(payload)
        assert len(self.places) == count


def read_journal(files: dict[str, bytes], cluster_id: bytes, node: str) -> Log:
    """Reads a folder, which has to be whole: a torn tail or a spare file is an error here."""
    log = Log()
    snapshots = [
        Snapshot(name, files[name], cluster_id, node)
        for name in sorted(files)
        if name.endswith(".snapshot")
    ]
    kept = [Kept(name, files[name], cluster_id, node) for name in sorted(files) if ".kept" in name]
    segments = {
        int(name[:10]): (Header(files[name], b"fifojrnl", cluster_id, node), files[name], name)
        for name in sorted(files)
        if name.endswith(".segment")
    }
    whole = 1 in segments and list(segments) == list(range(1, len(segments) + 1))
    base = snapshots[0] if len(snapshots) > 1 or (snapshots and not whole) else None
    position = _read_segments(log, segments, base)
    if snapshots:
        newest = snapshots[-1]
        log.index, log.state = newest.index, newest.state
        log.bodies = {index: _body(index, newest, kept, segments) for index in newest.places}
    assert log.synced <= position
    mark = files.get("synced")
    if mark is not None:
        magic, form, size, zero, marked, crc = struct.unpack("<8sHHIQI", mark)
        assert (magic, form, size, zero) == (b"fifosync", 1, 28, 0)
        assert crc == crc32c(mark[:24], crc32c(cluster_id + node.encode()))
        assert marked <= position
        log.synced = max(log.synced, marked)
    return log


Segments = dict[int, tuple[Header, bytes, str]]


def _end_of_records(content: bytes, offset: int) -> int:
    """Where the room of the last segment begins: zeros up to the end of the file."""
    while any(content[offset:]):
        offset += 36 + int.from_bytes(content[offset + 4 : offset + 8], "little")
    return offset


def _read_segments(log: Log, segments: Segments, base: Snapshot | None) -> int:
    """Replays the segments from the base on; the position where they end."""
    position: int | None = None
    for sequence, (header, content, name) in segments.items():
        assert header.numbers[0] == sequence
        _, start, first_index, previous_term = header.numbers
        assert name == f"{sequence:010d}-{first_index:020d}.segment"
        if base is not None and start + len(content) <= base.position:
            continue
        if position is None:
            log.first = first_index
        else:
            assert start == position
            assert first_index == log.first + len(log.entries)
            assert not log.entries or previous_term == log.entries[-1][2]
        if sequence == max(segments):
            content = content[: _end_of_records(content, header.size)]
        for record in read_records(content, header.size, start, header.seed):
            _apply(log, record, start, base)
        position = start + len(content)
    assert position is not None
    if base is not None:
        if base.restarts:
            assert log.first == base.index + 1
        else:
            assert log.entries[base.index - log.first][1:] == (base.index, base.term)
        del log.entries[: base.index + 1 - log.first]
        log.first = base.index + 1
    return position


def _apply(log: Log, record: Record, start: int, base: Snapshot | None) -> None:
    offset, kind, term, index, payload = record
    if kind == 1:
        (log.synced,) = struct.unpack("<Q", payload)
    elif kind == 2:
        assert index == log.first + len(log.entries)
        log.entries.append((payload, index, term))
    elif kind == 3:
        if index < log.first:
            assert base is not None
            assert start + offset < base.position
            log.first = index
        del log.entries[index - log.first :]
    elif kind == 4:
        log.term, log.vote = term, payload.decode() or None
    else:
        assert kind == 5
        log.commit = max(log.commit, index)


def _body(
    index: int, newest: Snapshot, kept: list[Kept], segments: Segments
) -> tuple[bytes, int, int]:
    """An entry that a snapshot needs, from where it lies now."""
    term, file, offset, size = newest.places[index]
    for later in kept:
        if later.number >= newest.next_number and index in later.places:
            term, file, offset, size = later.places[index]
    if file & 1 << 31:
        (holder,) = (one for one in kept if one.number | 1 << 31 == file)
        record = read_record(holder.content, offset, 0, holder.seed)
    else:
        header, content, _ = segments[file]
        record = read_record(content, offset, header.numbers[1], header.seed)
    assert record[1:4] == (2, term, index)
    assert len(record[4]) == size
    return record[4], index, term
