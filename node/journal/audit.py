"""The files of the audit log: lines of JSON, rotated and bounded, in a folder beside the journal.

Owns the files, and what is read of them. A line that cannot be written is lost and reported: the
change itself stands in the log of the cluster, and other nodes have the line. Must not know what a
line says, but for its `id`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from node.journal import limits
from node.journal.io.storage import AUDIT_FOLDER

logger = logging.getLogger(__name__)

_NAMES: Final = tuple(f"audit.{number}.jsonl" for number in range(limits.AUDIT_FILES))
"""The newest first."""

Line = dict[str, Any]


def is_audit_file(name: str) -> bool:
    """Whether a name in that folder is one of these files."""
    return name in _NAMES


class AuditFiles:
    """The audit log of one node. Every method blocks: call it off the event loop."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / AUDIT_FOLDER
        self._size = 0
        self._descriptor: int | None = None

    def open(self) -> tuple[int, int]:
        """Open the newest file, whose descriptor is held from then on, and return the id of the
        last line; (0, 0) where there is none. What hinders it hinders no node: it is logged."""
        try:
            self._open()
        except OSError as error:
            logger.error("event=audit_not_opened error=%s", error)
        return self.last_id()

    def close(self) -> None:
        """Close the file; harmless when repeated."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path = self._folder / _NAMES[0]
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._size = _whole_lines(path)
        return self._descriptor

    def last_id(self) -> tuple[int, int]:
        """The id of the last line; (0, 0) where there is none."""
        newest = next(self.lines(), None)
        return (0, 0) if newest is None else id_of(newest)

    def append(self, lines: Sequence[Line]) -> None:
        """Write these lines and sync them. An error is logged, and the lines are lost here."""
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        try:
            self._write(data)
        except OSError as error:
            self.close()
            logger.error("event=audit_not_written lines=%d error=%s", len(lines), error)

    def _write(self, data: bytes) -> None:
        descriptor = self._open()
        if self._size and self._size + len(data) > limits.AUDIT_FILE_BYTES:
            self.close()
            for newer, older in reversed(list(pairwise(_NAMES))):
                if (self._folder / newer).exists():
                    (self._folder / newer).replace(self._folder / older)
            descriptor = self._open()
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], self._size + written)
        os.fsync(descriptor)
        self._size += len(data)

    def lines(self) -> Iterator[Line]:
        """All lines, the newest first; one that is cut or damaged is left out."""
        for name in _NAMES:
            try:
                content = (self._folder / name).read_bytes()
            except OSError:
                continue
            for text in reversed(content.splitlines()):
                try:
                    line = json.loads(text)
                    id_of(line)
                except (ValueError, TypeError, KeyError):
                    continue
                yield line

    def found(
        self, wanted: Callable[[Line], bool], before: tuple[int, int] | None, most: int
    ) -> list[Line]:
        """Up to `most` lines, the newest first; `before`: only those with a lower id."""
        found: list[Line] = []
        for line in self.lines():
            if (before is None or id_of(line) < before) and wanted(line):
                found.append(line)
                if len(found) == most:
                    break
        return found


def id_of(line: Line) -> tuple[int, int]:
    """The entry of a change, and its place there. Raises ValueError, KeyError, TypeError."""
    index, place = line["id"].split(".")
    return int(index), int(place)


def _whole_lines(path: Path) -> int:
    """The bytes of the whole lines of a file: a crash may have cut the last one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    return content.rfind(b"\n") + 1
