"""One snapshot on its way to one peer, on the leader.

Owns what is sent next, how much is on its way, and where to go on after an interruption. The peer
says what it has; nothing is sent before it answered the offer. Knows the journal and no network:
the frames it makes are handed to whoever asked.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from node.raft import limits
from node.raft.config import SnapshotSent

if TYPE_CHECKING:
    from node.raft.config import RaftConfig
    from node.raft.held import Message
    from node.raft.journal import Journal


class Sending:
    """A snapshot that stays on the disk for as long as it is sent. Ended by `end`."""

    def __init__(self, journal: Journal, config: RaftConfig, now: float) -> None:
        """Sends the newest snapshot, which there must be."""
        assert journal.snapshot is not None, "entries are gone, and no snapshot stands for them"
        self._journal = journal
        self._config = config
        self.meta = journal.snapshot
        journal.pin(self.meta)
        self._indexes = journal.live_entries(self.meta)
        self._offered = False
        self._answered = False
        self._state_bytes = 0
        self._live_count = 0
        self._gap: tuple[int, int] | None = None
        self._on_the_way: deque[tuple[int, int, int]] = deque()
        self.in_flight_bytes = 0
        self.heard_at = now

    def end(self) -> None:
        """It arrived, or nobody waits for it any more."""
        self._journal.unpin(self.meta)

    def begin_again(self) -> None:
        """Ask the peer anew what it has: the connection is another, or nothing is heard."""
        self._offered = self._answered = False
        self._gap = None
        self._on_the_way.clear()
        self.in_flight_bytes = 0

    def how_far(self) -> SnapshotSent:
        """For operators: what of it was sent."""
        meta = self.meta
        return SnapshotSent(
            meta.index, self._state_bytes, meta.state_bytes, self._live_count, meta.live_count
        )

    def wants(self) -> bool:
        """Whether there is a frame to send now."""
        if not self._offered:
            return True
        return (
            self._answered
            and self.in_flight_bytes < self._config.window_bytes
            and not self._all_sent
        )

    @property
    def _all_sent(self) -> bool:
        meta = self.meta
        return self._state_bytes == meta.state_bytes and self._live_count == meta.live_count

    def next_frame(self, term: int, now: float) -> Message:
        """The next frame, where `wants` says that there is one.

        Raises `SnapshotFailed` where the snapshot is gone after all.
        """
        if not self._offered:
            self._offered = True
            self.heard_at = now
            return self._offer(term)
        if self._state_bytes < self.meta.state_bytes:
            message, size = self._state(term)
        else:
            message, size = self._entries(term)
        self._on_the_way.append((self._state_bytes, self._live_count, size))
        self.in_flight_bytes += size
        return message

    def acknowledged(self, message: Message, now: float) -> None:
        """The peer says what it has; with `gap` it wants what follows that, whatever was sent.

        Every piece behind a gap is answered so: the first answer is followed, the others are not,
        and if what was sent again is lost as well, silence leads to a new offer.
        """
        state_bytes = min(message["state_bytes"], self.meta.state_bytes)
        live_count = min(message["live_count"], self.meta.live_count)
        if message["gap"] and self._answered and self._gap == (state_bytes, live_count):
            return
        self.heard_at = now
        if message["gap"] or not self._answered:
            self._gap = (state_bytes, live_count) if self._answered else None
            self._answered = True
            self._on_the_way.clear()
            self.in_flight_bytes = 0
            self._state_bytes, self._live_count = state_bytes, live_count
            self._indexes = self._journal.live_entries(self.meta, live_count)
            return
        while self._on_the_way:
            sent_state, sent_live, size = self._on_the_way[0]
            if sent_state > state_bytes or sent_live > live_count:
                return
            self._on_the_way.popleft()
            self.in_flight_bytes -= size

    # --- frames ---

    def _head(self, kind: str, term: int) -> Message:
        return {
            "type": kind,
            "term": term,
            "index": self.meta.index,
            "entry_term": self.meta.term,
        }

    def _offer(self, term: int) -> Message:
        meta = self.meta
        return self._head("snapshot_offer", term) | {
            "previous_term": meta.previous_term,
            "state_bytes": meta.state_bytes,
            "live_count": meta.live_count,
            "digest": meta.digest,
        }

    def _state(self, term: int) -> tuple[Message, int]:
        offset = self._state_bytes
        data = self._journal.read_state(self.meta, offset, self._config.snapshot_chunk_bytes)
        self._state_bytes += len(data)
        return self._head("snapshot_state", term) | {"offset": offset, "data": data}, len(data)

    def _entries(self, term: int) -> tuple[Message, int]:
        first, size = self._live_count, 0
        entries: list[tuple[bytes, int, int]] = []
        while (
            self._live_count < self.meta.live_count
            and size < self._config.snapshot_chunk_bytes
            and len(entries) < limits.SNAPSHOT_ENTRIES_PER_FRAME
        ):
            entry = self._journal.kept_entry(next(self._indexes))
            entries.append(entry)
            size += len(entry[0]) + limits.SNAPSHOT_ENTRY_OVERHEAD_BYTES
            self._live_count += 1
        return self._head("snapshot_entries", term) | {"first": first, "entries": entries}, size
