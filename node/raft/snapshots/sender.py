"""A snapshot on its way to one peer, on the leader.

Owns what is sent next, how much is on its way, and where to go on after an interruption. The peer
says what it has; nothing is sent before it answered the offer. What is sent next is read off the
event loop. Must not know the network: the frames it makes are handed to the caller.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from node.journal.io.jobs import Prefetch
from node.raft import limits
from node.raft.config import SnapshotSent

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Generator

    from node.journal.io.jobs import Job, Worker
    from node.journal.journal import Journal
    from node.peers.message import Message
    from node.raft.config import RaftConfig


class Piece(NamedTuple):
    """Contents of one frame, and how far the snapshot is sent with it."""

    kind: str
    content: Message
    size: int
    state_bytes: int
    live_count: int


class SnapshotSender:
    """A snapshot that stays on the disk for as long as it is sent. Ended by `end`."""

    def __init__(
        self,
        journal: Journal,
        config: RaftConfig,
        now: float,
        worker: Worker,
        wake: Callable[[], None],
    ) -> None:
        """Sends the newest snapshot, which there must be. `worker` reads; `wake` is
        called when there is something to send that was not there before."""
        assert journal.snapshot is not None, "entries are gone, and no snapshot stands for them"
        self._journal = journal
        self._config = config
        self.meta = journal.snapshot
        journal.pin(self.meta)
        self._worker = worker
        self._wake = wake
        self._pieces: Prefetch[Piece] | None = None
        self._offered = False
        self._answered = False
        self._state_bytes = 0
        self._live_count = 0
        self._gap: tuple[int, int] | None = None
        self._on_the_way: deque[tuple[int, int, int]] = deque()
        self.in_flight_bytes = 0
        self.heard_at = now

    def end(self) -> None:
        """End it: it arrived, or the peer is gone."""
        self._stop_reading()
        self._journal.unpin(self.meta)

    def begin_again(self) -> None:
        """Ask the peer anew what it has: the connection is another, or nothing is heard."""
        self._offered = self._answered = False
        self._stop_reading()
        self._gap = None
        self._on_the_way.clear()
        self.in_flight_bytes = 0

    def how_far(self) -> SnapshotSent:
        """For operators: what of it was sent."""
        meta = self.meta
        return SnapshotSent(
            meta.index, self._state_bytes, meta.state_bytes, self._live_count, meta.live_count
        )

    @property
    def reading(self) -> bool:
        """Whether the next frame is being read: the peer has nothing to answer meanwhile."""
        return self._pieces is not None and self._pieces.waiting

    def wants(self) -> bool:
        """Whether there is a frame to send now."""
        if not self._offered:
            return True
        if self._pieces is None or self.in_flight_bytes >= self._config.window_bytes:
            return False
        return self._pieces.ready

    def next_frame(self, term: int, now: float) -> Message:
        """The next frame, where `wants` says that there is one.

        Raises `SnapshotFailed` where the snapshot is gone after all.
        """
        if not self._offered:
            self._offered = True
            self.heard_at = now
            return self._offer(term)
        piece = self._pieces.take() if self._pieces is not None else None
        assert piece is not None, "asked for a frame that it does not have"
        self._state_bytes, self._live_count = piece.state_bytes, piece.live_count
        self._on_the_way.append((piece.state_bytes, piece.live_count, piece.size))
        self.in_flight_bytes += piece.size
        return self._head(piece.kind, term) | piece.content

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
            self._stop_reading()
            pieces = self._reading(state_bytes, live_count)
            self._pieces = Prefetch(pieces, self._worker, self._wake)
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
            "members": meta.members,
        }

    # --- reading ---

    def _stop_reading(self) -> None:
        if self._pieces is not None:
            self._pieces.stop()
            self._pieces = None

    def _reading(self, state_bytes: int, live_count: int) -> Generator[Job[Any] | Piece]:
        """Yield what follows on this much state and this many entries."""
        journal, meta = self._journal, self.meta
        while state_bytes < meta.state_bytes:
            offset, size = state_bytes, self._config.snapshot_chunk_bytes
            data = yield from journal.reading_state(meta, offset, size)
            state_bytes += len(data)
            content = {"offset": offset, "data": data}
            yield Piece("snapshot_state", content, len(data), state_bytes, live_count)
        while live_count < meta.live_count:
            indexes = yield from journal.reading_live_indexes(meta, live_count)
            while indexes:
                count, size = self._fit(indexes)
                entries = yield from journal.reading_entries(indexes[:count])
                if not entries:
                    return  # Damaged: the peer is asked anew soon, and by then it is repaired.
                indexes = indexes[len(entries) :]
                content = {"first": live_count, "entries": entries}
                live_count += len(entries)
                yield Piece("snapshot_entries", content, size, state_bytes, live_count)

    def _fit(self, indexes: array[int]) -> tuple[int, int]:
        """Count the entries that go into one frame, and the bytes that they count for."""
        count = size = 0
        for index in indexes[: limits.SNAPSHOT_ENTRIES_PER_FRAME]:
            size += self._journal.entry_bytes(index) + limits.SNAPSHOT_ENTRY_OVERHEAD_BYTES
            count += 1
            if size >= self._config.snapshot_chunk_bytes:
                break
        return count, size
