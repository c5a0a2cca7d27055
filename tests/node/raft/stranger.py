"""A reader of journal folders written from `docs/storage.md` alone.

Imports nothing of the project and not even its checksum package: where this and the project
disagree, one of the two or the page is wrong. Slow and plain on purpose.
"""

from __future__ import annotations

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
    """What a journal says: entries as (command, index, term), term, vote, commit hint."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, int, int]] = []
        self.term = 0
        self.vote: str | None = None
        self.commit = 0
        self.synced = 0


def read_journal(files: dict[str, bytes], cluster_id: bytes, node: str) -> Log:
    """Reads the segments among `files`, which have to be whole: a torn tail is an error here."""
    log = Log()
    base = 0
    names = sorted(name for name in files if name.endswith(".segment"))
    for sequence, name in enumerate(names, start=1):
        content = files[name]
        fields = struct.unpack_from("<8sHHIQQQQ16sB", content)
        assert fields[0] == b"fifojrnl"
        assert fields[1] in {1, 2}
        header_size = fields[2]
        assert fields[4:6] == (sequence, base)
        assert name == f"{sequence:010d}-{fields[6]:020d}.segment"
        assert fields[6] == len(log.entries) + 1
        assert fields[7] == (log.entries[-1][2] if log.entries else 0)
        assert fields[8] == cluster_id
        assert content[65 : 65 + fields[9]].decode() == node
        assert header_size == 65 + fields[9] + 4
        (seed,) = struct.unpack_from("<I", content, header_size - 4)
        assert seed == crc32c(content[: header_size - 4])
        offset = header_size
        while offset < len(content):
            offset += read_record(log, content, offset, base, seed)
        base += len(content)
    assert log.synced <= base
    mark = files.get("synced")
    if mark is not None:
        magic, form, size, zero, position, crc = struct.unpack("<8sHHIQI", mark)
        assert (magic, form, size, zero) == (b"fifosync", 1, 28, 0)
        assert crc == crc32c(mark[:24], crc32c(cluster_id + node.encode()))
        assert position <= base
        log.synced = max(log.synced, position)
    return log


def read_record(log: Log, content: bytes, offset: int, base: int, seed: int) -> int:
    magic, kind, zero, size, position, term, index, crc = struct.unpack_from(
        "<2sBBIQQQI", content, offset
    )
    assert (magic, zero, position) == (b"\xf1\xf0", 0, base + offset)
    payload = content[offset + 36 : offset + 36 + size]
    assert len(payload) == size
    assert crc == crc32c(content[offset : offset + 32] + payload, seed)
    if kind == 1:
        (log.synced,) = struct.unpack("<Q", payload)
    elif kind == 2:
        assert index == len(log.entries) + 1
        log.entries.append((payload, index, term))
    elif kind == 3:
        del log.entries[index - 1 :]
    elif kind == 4:
        log.term, log.vote = term, payload.decode() or None
    else:
        assert kind == 5
        log.commit = max(log.commit, index)
    return 36 + int(size)
