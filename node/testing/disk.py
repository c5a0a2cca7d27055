"""A simulated disk: the twin of `node.journal.io.storage.OsStorage`, with power losses and faults.

Owns what a disk forgets. A write goes to the page cache and is noted as unsynced; a sync brings
it to the platter. `power_loss` keeps, for each file and for the folder alone, a random prefix
of what was unsynced and changes the size or the names, the last write torn at a random byte; of
what overwrites bytes that are on the platter, any sectors. `crash` is a kill of the process: the
page cache stays. Both end the process: files that it had open are dead afterwards.

That a file grows in order is what ext4 and XFS do. What a failed sync could not write is lost from
the platter for good while reads still show it, as Linux does: only writing it again helps.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from node.journal.errors import JournalLocked
from node.journal.io.place import Place

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence


class PowerCut(Exception):
    """Raised by a hook to end the process in the middle of an operation."""


SECTOR_BYTES = 512


class _Write(NamedTuple):
    offset: int
    content: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.content)

    def split(self, place: int) -> tuple[_Write, _Write]:
        """Split the write into the part before `place` of the file, and the rest."""
        cut = max(0, place - self.offset)
        before = _Write(self.offset, self.content[:cut])
        return before, _Write(max(self.offset, place), self.content[cut:])

    @property
    def nothing(self) -> _Write:
        return _Write(self.offset, b"")


def _beginning(write: _Write, rng: random.Random) -> _Write:
    return write.split(write.offset + rng.randint(0, len(write.content)))[0]


def _some_sectors(write: _Write, rng: random.Random, *, torn: bool) -> Iterator[_Write]:
    """Parts that a power loss keeps of a write over bytes that were there: each sector alone; or,
    if it is `torn`, as often a beginning, cut at any byte."""
    if torn and rng.random() < 0.5:
        yield _beginning(write, rng)
        return
    while write.content:
        sector, write = write.split((write.offset // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if rng.random() < 0.5:
            yield sector


class _Truncate(NamedTuple):
    size: int


class _Inode:
    """A file's bytes, in the page cache and on the platter."""

    def __init__(self) -> None:
        self.cache = bytearray()
        self.platter = bytearray()
        self.unsynced: list[_Write | _Truncate] = []

    def change(self, operation: _Write | _Truncate) -> None:
        _perform(self.cache, operation)
        self.unsynced.append(operation)

    def sync(self) -> None:
        for operation in self.unsynced:
            _perform(self.platter, operation)
        self.unsynced.clear()

    def power_loss(self, rng: random.Random) -> None:
        whole_sectors = len(self.platter) // SECTOR_BYTES * SECTOR_BYTES
        kept = rng.randint(0, len(self.unsynced))
        for number, operation in enumerate(self.unsynced):
            if isinstance(operation, _Truncate):
                if number < kept:
                    _perform(self.platter, operation)
                continue
            within, beyond = operation.split(whole_sectors)
            if number >= kept:
                beyond = _beginning(beyond, rng) if number == kept else beyond.nothing
            for piece in _some_sectors(within, rng, torn=not beyond.content):
                if piece.end <= len(self.platter):
                    _perform(self.platter, piece)
            _perform(self.platter, beyond)
        self.unsynced.clear()
        self.cache = bytearray(self.platter)


_NameChange = dict[str, _Inode | None]
"""Effects of one folder operation, all at once: None takes the name away."""


def _perform(content: bytearray, operation: _Write | _Truncate) -> None:
    if isinstance(operation, _Truncate):
        del content[operation.size :]
        return
    if not operation.content:
        return
    if len(content) < operation.offset:
        content.extend(bytes(operation.offset - len(content)))
    content[operation.offset : operation.offset + len(operation.content)] = operation.content


class SimFile:
    """An open file of one simulated process."""

    def __init__(self, storage: SimStorage, name: str, inode: _Inode) -> None:
        self._storage = storage
        self._name = name
        self._inode = inode
        self._process = storage.process
        storage.open_files += 1
        self._open = True

    def _alive(self) -> None:
        assert self._process == self._storage.process, "a dead process touched the disk"
        assert self._open, "a closed file was used"

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        self._alive()
        content = b"".join(parts)
        try:
            self._storage.note("write", self._name)
        except OSError:
            self._inode.change(_Write(offset, content[: len(content) // 2]))
            raise
        room = self._storage.room_for(self._inode, offset)
        self._inode.change(_Write(offset, content[:room]))
        self._storage.written_bytes += len(content[:room])
        if room < len(content):
            raise _error(errno.ENOSPC)

    def read(self, offset: int, size: int) -> bytes:
        self._alive()
        if self._storage.read_hook is not None:
            self._storage.read_hook(self._name)
        content = bytes(self._inode.cache[offset : offset + size])
        self._storage.reads += 1
        self._storage.read_bytes += len(content)
        self._storage.largest_read_bytes = max(self._storage.largest_read_bytes, len(content))
        return content

    def sync(self) -> None:
        self._alive()
        try:
            self._storage.note("sync", self._name)
        except OSError:
            # The pages stay in the cache and count as clean: no later sync will write them.
            self._inode.unsynced.clear()
            raise
        if not self._storage.lying:
            self._inode.sync()
        self._storage.syncs += 1

    def allocate(self, size: int) -> None:
        self.write(0, (bytes(size),))

    def truncate(self, size: int) -> None:
        self._alive()
        self._storage.note("truncate", self._name)
        self._inode.change(_Truncate(size))

    def size(self) -> int:
        self._alive()
        return len(self._inode.cache)

    def close(self) -> None:
        if self._open and self._process == self._storage.process:
            self._storage.open_files -= 1
        self._open = False


class Image(NamedTuple):
    """The content of a volume at a moment: its files, and the time of birth of its lock file."""

    files: Mapping[str, bytes]
    birth: int


class SimStorage:
    """A folder on a disk that outlives the processes using it.

    `hook(operation, file name)` is called before each change; it may raise an OSError (a failed
    write then leaves half of its bytes, a failed sync loses what it should have written) or
    `PowerCut`. `read_hook(file name)` is called before each read. `capacity_bytes` bounds
    what all files hold.
    """

    def __init__(self, folder: str = "simulated", capacity_bytes: int | None = None) -> None:
        self._folder = folder
        self.capacity_bytes = capacity_bytes
        self.birth = 0
        """The time of birth of its lock file: another one in a copy of the files."""
        self.lying = False
        """Whether syncs are acknowledged and nothing is brought to the platter: a cache that loses
        its content with the power, or a hypervisor that ignores flushes."""
        self.hook: Callable[[str, str], None] | None = None
        self.read_hook: Callable[[str], None] | None = None
        self.process = 0
        self.operations = 0
        self.syncs = 0
        self.reads = 0
        self.read_bytes = 0
        self.largest_read_bytes = 0
        self.written_bytes = 0
        self.open_files = 0
        self._locked = False
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._unsynced_names: list[_NameChange] = []

    @property
    def folder(self) -> str:
        return self._folder

    def for_process(self) -> ProcessDisk:
        """The disk as one process sees it: after its death nothing of it reaches the disk."""
        return ProcessDisk(self)

    # --- what happens to a disk ---

    def crash(self) -> None:
        """Kills the process: its files and its lock are gone, the page cache stays."""
        self.process += 1
        self.open_files = 0
        self._locked = False
        self.hook = None
        self.read_hook = None

    def power_loss(self, rng: random.Random) -> None:
        """Ends the process and forgets a random suffix of everything that was not synced."""
        self.crash()
        kept = rng.randint(0, len(self._unsynced_names))
        for change in self._unsynced_names[:kept]:
            _link(self._durable_names, change)
        self._unsynced_names.clear()
        self._names = dict(self._durable_names)
        for inode in self._names.values():
            inode.power_loss(rng)

    def content(self, name: str) -> bytes:
        """A file's bytes as a process would read them."""
        return bytes(self._names[name].cache)

    def replace(self, name: str, content: bytes) -> None:
        """Damages the disk: the file holds `content` from now on."""
        inode = self._names.setdefault(name, _Inode())
        self._durable_names[name] = inode
        inode.unsynced.clear()
        inode.cache = bytearray(content)
        inode.platter = bytearray(content)

    def fill(self, room_bytes: int) -> None:
        """Something else takes the room of the disk, and leaves this much."""
        self.capacity_bytes = self._used_bytes() + room_bytes

    def rot(self, name: str, content: bytes) -> None:
        """Damages a file under the process that has it open."""
        self._names[name].cache[:] = content

    def wipe(self) -> None:
        """Puts an empty disk in the place of this one."""
        self._names.clear()
        self._durable_names.clear()
        self._unsynced_names.clear()
        self.birth += 1

    def image(self) -> Image:
        """The platter as it is now, as a snapshot of the whole volume takes it."""
        files = {name: bytes(inode.platter) for name, inode in self._durable_names.items()}
        return Image(files, self.birth)

    def restore(self, image: Image, *, copied: bool = False) -> None:
        """Puts an older image of the volume in the place of this one; `copied`: file by file, so
        that each of them is born anew."""
        self.wipe()
        for name, content in image.files.items():
            self.replace(name, content)
        if not copied:
            self.birth = image.birth

    def remove(self, name: str) -> None:
        """Damages the disk: the file is gone."""
        self._names.pop(name, None)
        self._durable_names.pop(name, None)

    # --- the Storage protocol ---

    def lock(self) -> None:
        if self._locked:
            raise JournalLocked(f"the journal folder {self._folder} is in use by process 1")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def listdir(self) -> list[str]:
        return sorted(self._names)

    def create(self, name: str) -> SimFile:
        self.note("create", name)
        if name in self._names:
            raise _error(errno.EEXIST)
        inode = _Inode()
        self._change_names({name: inode})
        return SimFile(self, name, inode)

    def open(self, name: str) -> SimFile:
        if name not in self._names:
            raise _error(errno.ENOENT)
        return SimFile(self, name, self._names[name])

    def rename(self, old: str, new: str) -> None:
        self.note("rename", new)
        self._change_names({new: self._names[old], old: None})

    def unlink(self, name: str) -> None:
        self.note("unlink", name)
        self._change_names({name: None})

    def sync_folder(self) -> None:
        self.note("sync_folder", "")
        if self.lying:
            return
        for change in self._unsynced_names:
            _link(self._durable_names, change)
        self._unsynced_names.clear()

    def free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 40
        return max(0, self.capacity_bytes - self._used_bytes())

    def disk_bytes(self) -> int:
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes

    def place(self) -> Place:
        return Place(self._folder, "1", str(self.birth))

    # --- inside ---

    def note(self, operation: str, name: str) -> None:
        """Counts an operation and lets the hook have its say."""
        self.operations += 1
        if self.hook is not None:
            self.hook(operation, name)

    def room_for(self, inode: _Inode, offset: int) -> int:
        """Number of bytes that a write at `offset` may have before the disk is full."""
        if self.capacity_bytes is None:
            return 1 << 62
        return max(0, len(inode.cache) - offset) + self.free_bytes()

    def _used_bytes(self) -> int:
        return sum(len(inode.cache) for inode in self._names.values())

    def _change_names(self, change: _NameChange) -> None:
        _link(self._names, change)
        self._unsynced_names.append(change)


class ProcessDisk:
    """A disk until the process ends. What Python cleans up long after a simulated kill must not
    clean up the disk: a killed process does not."""

    def __init__(self, storage: SimStorage) -> None:
        self._storage = storage
        self._process = storage.process

    def __getattr__(self, name: str) -> Any:
        if self._process != self._storage.process:
            raise _error(errno.ESRCH)
        return getattr(self._storage, name)


def _link(names: dict[str, _Inode], change: _NameChange) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
