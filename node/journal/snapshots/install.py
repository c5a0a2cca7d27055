"""Taking over a snapshot of another node: its state, and the live entries with it.

Owns the checks and the order of the steps. Nothing that was there is touched before the snapshot
is on the disk under its name: that rename is the moment from which it counts, and a crash before
or after it finds one of two whole journals. Knows nothing of peers and frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal.errors import JournalRefused, SnapshotFailed
from node.journal.io.jobs import off_loop
from node.journal.locations import EntryLocations
from node.journal.record_files import aborting
from node.journal.snapshots.compacted_file import CompactedFile, CompactedFileWriter
from node.journal.snapshots.file import SnapshotBuilder, SnapshotMeta

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from node.journal.io.jobs import OffLoop
    from node.journal.log import DurableLog
    from node.journal.snapshots.store import SnapshotStore


class InstallWriter:
    """An installation in the making. Made by `Journal.begin_install`.

    Every method but `abort` raises `SnapshotFailed` when it had to be given up; nothing of it is
    left then.
    """

    def __init__(
        self,
        store: SnapshotStore,
        meta: SnapshotMeta,
        builder: SnapshotBuilder,
        *,
        log: DurableLog,
        fail: Callable[[OSError], NoReturn],
    ) -> None:
        self._store = store
        self._entries = store.entries
        self._meta = meta
        self._builder = builder
        self._log = log
        self._fail = fail
        self._kept: list[CompactedFileWriter] = []
        self._count = 0
        self._last_index = 0

    @property
    def state_bytes(self) -> int:
        """Bytes of the state taken so far."""
        return self._builder.state_bytes

    @property
    def entries(self) -> int:
        """Live entries taken so far."""
        return self._count

    def add_state(self, data: bytes) -> None:
        """The next bytes of the state."""
        self._check_open()
        with aborting(self):
            self._builder.add_state(data)

    def add_entry(self, command: bytes, index: int, term: int) -> None:
        """The next live entry."""
        self._check_open()
        with aborting(self):
            if not self._last_index < index <= self._meta.index or term > self._meta.term:
                raise SnapshotFailed(
                    f"the installation was given up: entry {index} of term {term} cannot follow "
                    f"entry {self._last_index}"
                )
            if not self._kept or self._kept[-1].file.size >= self._entries.segment_bytes:
                number = self._entries.take_number()
                self._kept.append(
                    CompactedFileWriter(
                        self._entries.storage,
                        self._entries.identity,
                        number,
                        "the installation",
                    )
                )
            self._kept[-1].add(command, index, term)
        self._last_index = index
        self._count += 1

    def finishing(self) -> OffLoop[bool]:
        """Replace the log up to the snapshot's index, on the disk and here. Syncs off the event
        loop; the log may grow meanwhile.

        True if the log had the snapshot's last entry: what follows it has stayed. False if the
        log begins anew there. Beside `SnapshotFailed` it may raise `JournalFailed`, which is final.
        """
        self._check_open()
        try:
            with aborting(self):
                self._check_whole()
                self._check_use()
                yield from off_loop(self._builder.file.sync)
                yield from self._log.making_durable()
                published: list[CompactedFile] = []
                if not self._log_has_it:
                    published = yield from self._publish_kept()
                    self._check_use()
                if self._log_has_it:
                    yield from self._log.making_durable()  # The snapshot's own entry may be new.
                    self._store.catalog.unneeded += [kept.name for kept in published]
                    yield from self._adopt_keeping_log()
                    return True
                self._log.sync()
                self._adopt_replacing_log(published)
        except OSError as problem:
            self._fail(problem)
        self._log.restart(self._meta)
        return False

    @property
    def _log_has_it(self) -> bool:
        """Whether the log holds all that the snapshot holds: its own entries serve then."""
        return self._entries.holds(self._meta.index, self._meta.term)

    def _publish_kept(self) -> OffLoop[list[CompactedFile]]:
        """Bring the entries to the disk under their names: of use only with the snapshot."""
        published: list[CompactedFile] = []
        try:
            for kept in self._kept:
                kept.seal(self._store.files)
                yield from off_loop(kept.file.publish)
                published.append(kept.published())
        except SnapshotFailed:
            self._store.catalog.unneeded += [kept.name for kept in published]
            raise
        return published

    def _check_whole(self) -> None:
        taken = (self._builder.state_bytes, self._builder.digest(), self._count)
        meta = self._meta
        if taken != (meta.state_bytes, meta.digest, meta.live_count):
            raise SnapshotFailed(
                f"the installation was given up: {taken[0]} bytes of state and {self._count} "
                f"entries arrived, which are not those of snapshot {meta.name}"
            )

    def _check_use(self) -> None:
        """The log may have come further than the snapshot while that arrived."""
        newest, meta = self._store.newest, self._meta
        if newest is not None and newest.meta.index >= meta.index:
            raise SnapshotFailed(
                f"the installation of snapshot {meta.name} was overtaken by a newer one"
            )
        if self._log.commit_hint() >= meta.index and not self._entries.holds(meta.index, meta.term):
            raise JournalRefused(
                f"entry {meta.index} is committed here, in another term than the {meta.term} of "
                "the snapshot that is to be installed"
            )

    def _adopt_keeping_log(self) -> OffLoop[None]:
        store, meta = self._store, self._meta
        position = self._entries.log.extent_at(meta.index).position
        for kept in self._kept:
            self._builder.add_locations(self._entries.locate_all(kept.locations.indexes))
        self._builder.seal(store.files, position, restarts=False)
        yield from off_loop(self._builder.file.publish)
        snapshot = self._builder.published(store.files)
        self._discard_kept()
        store.writer = None
        store.adopt(snapshot)

    def _adopt_replacing_log(self, published: list[CompactedFile]) -> None:
        """The log must not grow between the position that the snapshot names and its restart."""
        store = self._store
        locations = EntryLocations()
        try:
            for kept in self._kept:
                self._builder.add_locations(kept.locations)
                locations.extend(kept.locations)
            end = self._entries.segments.current.end
            snapshot = self._builder.publish(store.files, end, restarts=True)
        except SnapshotFailed:
            store.catalog.unneeded += [kept.name for kept in published]
            raise
        self._return_numbers()
        store.writer = None
        store.install(snapshot, published, locations)

    def abort(self) -> None:
        """Give the installation up; harmless after the end."""
        if self._store.writer is self:
            self._store.writer = None
            self._discard_kept()
            self._builder.file.abort()

    def _discard_kept(self) -> None:
        for kept in self._kept:
            kept.file.abort()
        self._return_numbers()

    def _return_numbers(self) -> None:
        for kept in self._kept:
            self._entries.return_number(kept.number)

    def _check_open(self) -> None:
        if self._store.writer is not self:
            raise SnapshotFailed("the installation has already ended")
