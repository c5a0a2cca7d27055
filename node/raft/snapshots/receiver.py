"""A snapshot that comes from the leader, on a follower: taken piece by piece, installed whole.

Owns what has come so far. A piece is taken only where the last one ended, so that duplicates and
late frames change nothing; a connection that ends costs nothing that has come. Nothing of this
node's log or state changes before all is there, verified and durable. Knows no terms and no
library: whether an offer may be taken is decided by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal.snapshots.file import SnapshotMeta
from node.peers.message import MessageRefused

if TYPE_CHECKING:
    from node.journal.io.jobs import OffLoop
    from node.journal.journal import Journal
    from node.journal.snapshots.install import InstallWriter
    from node.peers.message import Message


def offered(message: Message) -> SnapshotMeta:
    """The snapshot that an offer is of."""
    return SnapshotMeta(
        index=message["index"],
        term=message["entry_term"],
        previous_term=message["previous_term"],
        state_bytes=message["state_bytes"],
        live_count=message["live_count"],
        digest=message["digest"],
        members=message["members"],
    )


class SnapshotReceiver:
    """The one snapshot that this node takes, if it takes one."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._writer: InstallWriter | None = None
        self.meta: SnapshotMeta | None = None
        self.state_bytes = 0
        self.live_count = 0
        self._last_index = 0

    @property
    def complete(self) -> bool:
        """Whether all of it has come."""
        meta = self.meta
        return meta is not None and (self.state_bytes, self.live_count) == (
            meta.state_bytes,
            meta.live_count,
        )

    def begin(self, meta: SnapshotMeta, *, replaces: bool) -> None:
        """Take this one; what came of it already stays, what came of another is dropped.
        `replaces`: see `Journal.begin_install`.

        Raises `SnapshotFailed` where the disk does not let it begin.
        """
        if meta == self.meta:
            return
        self.stop()
        self._writer = self._journal.begin_install(meta, replaces=replaces)
        self.meta = meta
        self.state_bytes = self.live_count = self._last_index = 0

    def stop(self) -> None:
        """Drop what has come."""
        writer, self._writer, self.meta = self._writer, None, None
        if writer is not None:
            writer.abort()

    def takes(self, message: Message) -> bool:
        """Whether a piece is of the snapshot that is being taken."""
        meta = self.meta
        return meta is not None and (meta.index, meta.term) == (
            message["index"],
            message["entry_term"],
        )

    def add(self, message: Message) -> bool:
        """Take a piece. False where something before it is missing.

        Raises `SnapshotFailed` where the disk does not take it, and has dropped all then.
        """
        assert self.meta is not None
        assert self._writer is not None
        if message["type"] == "snapshot_state":
            data, offset = message["data"], message["offset"]
            if offset != self.state_bytes or not data:
                return bool(offset < self.state_bytes)
            end = offset + len(data)
            if end > self.meta.state_bytes:
                raise MessageRefused(
                    f"state up to byte {end} of snapshot {self.meta.name}, which has "
                    f"{self.meta.state_bytes}"
                )
            self._writer.add_state(data)
            self.state_bytes += len(data)
            return True
        entries, first = message["entries"], message["first"]
        if first != self.live_count or self.state_bytes < self.meta.state_bytes:
            return bool(first < self.live_count)
        self._add_entries(self.meta, self._writer, entries)
        return True

    def _add_entries(
        self, meta: SnapshotMeta, writer: InstallWriter, entries: list[tuple[bytes, int, int]]
    ) -> None:
        count = self.live_count + len(entries)
        if count > meta.live_count:
            raise MessageRefused(
                f"{count} entries of snapshot {meta.name}, which needs {meta.live_count}"
            )
        for command, index, term in entries:
            if not self._last_index < index <= meta.index or term > meta.term:
                raise MessageRefused(
                    f"entry {index} of term {term} after entry {self._last_index} of snapshot "
                    f"{meta.name}: indexes must rise up to {meta.index}, terms go up to {meta.term}"
                )
            writer.add_entry(command, index, term)
            self._last_index = index
            self.live_count += 1

    def finishing(self) -> OffLoop[SnapshotMeta]:
        """Make what has come this node's newest snapshot and its log begin there; yields what it
        has to wait for.

        Raises `SnapshotFailed` where it is not what was offered, or the disk does not take it.
        """
        writer, meta = self._writer, self.meta
        self._writer = self.meta = None
        assert writer is not None
        assert meta is not None
        yield from writer.finishing()
        return meta

    def position(self) -> dict[str, int]:
        """Return how far it has come, in the fields of an answer."""
        return {"state_bytes": self.state_bytes, "live_count": self.live_count}
