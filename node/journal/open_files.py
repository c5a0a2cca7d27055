"""The descriptors of a journal folder: opened when needed, given back beyond a bound.

Owns which files are open. Knows no format and no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node.journal.io.storage import Storage, StorageFile


class OpenFiles:
    """At most `open_max` open files, the least recently used closed first, `written` never."""

    def __init__(self, storage: Storage, open_max: int) -> None:
        self._storage = storage
        self._open_max = open_max
        self._files: dict[str, StorageFile] = {}
        self.written: str | None = None
        """The file that is being written stays open: a failed sync is only reported to
        descriptors that were open when it failed."""

    def __len__(self) -> int:
        return len(self._files)

    def get(self, name: str) -> StorageFile:
        """The open file, opened again if its descriptor was given back."""
        file = self._files.pop(name, None) or self._storage.open(name)
        self.keep(name, file)
        return file

    def keep(self, name: str, file: StorageFile) -> None:
        """Notes an open file as the most recently used."""
        self._files[name] = file
        while len(self._files) > self._open_max:
            oldest = next(iter(self._files))
            if oldest == self.written:
                self._files[oldest] = self._files.pop(oldest)
                continue
            self._files.pop(oldest).close()

    def drop(self, name: str) -> None:
        """Closes a file that is about to go, if it is open."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Closes every descriptor."""
        for file in self._files.values():
            file.close()
        self._files.clear()
