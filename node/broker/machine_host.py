"""The replicated machine of one node: entries of the log in, replies and effects out.

Owns the machine and the way from an entry to its commands; every node runs it, in log order. Must
not know connections, sockets or Raft's roles: a leader keeps the outcome, other nodes drop it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from fifo.machine.contract import (
    Command,
    Frozen,
    Machine,
    Meta,
    Outcome,
    Reply,
    code_of,
    commands,
    from_list,
    live_entries,
    snapshot_chunks,
)
from fifo.words.versions import STATES_COMPARED
from node.broker import entry
from node.broker.audit import NOTE, Auditing, Note
from node.broker.limits import DIGEST_MS
from node.journal.skips import Skip
from node.raft import MARK_ENTRIES, Mark

__all__ = ["MachineHost"]

_FREQUENT: dict[Any, Callable[..., Any]] = {
    NOTE: Note,
    code_of(commands.Publish): commands.Publish,
    code_of(commands.PublishAcross): commands.PublishAcross,
    code_of(commands.Settle): commands.Settle,
}
"""By code. Their fields are plain values and tuples, which is the form of an unpacked entry."""


class HostView:
    """A frozen state, as Raft reads it (`node.raft.environment.StateView`)."""

    def __init__(self, frozen: Frozen) -> None:
        self._frozen = frozen

    def live(self) -> Iterator[array[int]]:
        """The entries of the log that the state points to, ascending."""
        return live_entries(self._frozen)

    def chunks(self) -> Iterator[bytes]:
        """The state's canonical bytes."""
        return snapshot_chunks(self._frozen)

    def release(self) -> None:
        """Release the state for changes without copies: no reader is left."""
        self._frozen.release()


class MachineHost:
    """Applies entries. An exception stops the node: the state may be half changed then."""

    def __init__(
        self,
        machine: Machine,
        read: Callable[[int], memoryview],
        taken_over: Callable[[], None] = lambda: None,
        marked: Callable[[Mark], None] = lambda mark: None,
    ) -> None:
        """`read(index)`: the payload of an entry in this node's log; `taken_over` is called when
        the state was replaced, so that knowledge of the old one is void; `marked` at each multiple
        of `MARK_ENTRIES`, with the running hash of the entries before it."""
        self.machine = machine
        self._read = read
        self._taken_over = taken_over
        self._marked = marked
        self.mark_entries = MARK_ENTRIES
        self._next_mark = 0
        """Index of the next mark; 0 where it is not known that all entries before it are applied
        one after the other."""
        self.auditing: Auditing | None = None
        """Makes lines of the notes in entries; None: nothing does."""
        self._noted_last: Note | None = None
        self.name_digest: Callable[[int], None] = lambda index: None
        """Called before the entry of this index is applied, where its time names a digest."""
        self.digest_ms = DIGEST_MS
        self._follow_time(self.machine.cluster_time_ms)

    def _follow_time(self, now_ms: int) -> None:
        self.digest_at_ms = (now_ms // self.digest_ms + 1) * self.digest_ms

    def _name_digest(self, index: int, stamp_ms: int) -> None:
        """The log's time has come to another period: every member is at the same state now."""
        self._follow_time(stamp_ms)
        if self.machine.version >= STATES_COMPARED:
            self.name_digest(index)

    def apply(self, index: int, payload: memoryview) -> tuple[entry.Entry, list[Command], Outcome]:
        """Apply one entry of the log."""
        unpacked = entry.unpack(payload)
        batch = list(map(_command, unpacked.commands))
        if index >= self._next_mark:
            self._mark(index)
        if unpacked.stamp_ms >= self.digest_at_ms:
            self._name_digest(index, unpacked.stamp_ms)
        meta = Meta(index, unpacked.stamp_ms, unpacked.wall_ms, unpacked.area)
        if self._noted_last is not None or Note in map(type, batch):
            return unpacked, batch, self._apply_noted(meta, batch)
        outcome = self.machine.apply_batch(meta, batch)
        assert len(outcome.replies) == len(batch), "every command has one reply"
        return unpacked, batch, outcome

    def skip(self, index: int, payload: memoryview, skip: Skip) -> None:
        """Pass over an entry whose application raises on every member; the audit log says so."""
        if index >= self._next_mark:
            self._mark(index)
        self.machine.skip(index, skip.checksum)
        left, self._noted_last = self._noted_last, None
        notes = [] if left is None else [left._replace(outcome="its entry was skipped")]
        what = {"index": index, "checksum": f"{skip.checksum:08x}"}
        notes.append(Note(skip.by, "", "", "skip_entry", None, what))
        if self.auditing is not None:
            lines = [(place, note, None) for place, note in enumerate(notes)]
            wall_ms = entry.wall_of(payload)
            self.auditing.applied(index, wall_ms, lines, [{} for _ in lines])

    def _mark(self, index: int) -> None:
        """Pass on the mark between the last entry applied and entry `index`: entries of Raft's own
        lie between them, and one of those may be a multiple."""
        at = index - index % self.mark_entries
        if self._next_mark:
            self._marked(Mark(at, self.machine.version, self.machine.running_hash))
        self._next_mark = at + self.mark_entries

    def _apply_noted(self, meta: Meta, batch: Sequence[Command | Note]) -> Outcome:
        """Apply an entry with notes, which are no commands. Each has its place among the replies,
        so that those of others keep theirs; one may stand at the end of the entry before its
        command's."""
        # A new leader's first entry: the command that was to follow never came.
        left = None if term_of(batch) is not None else self._noted_last
        noted = [] if left is None else [(0, left)]
        noted += [(at, one) for at, one in enumerate(batch, 1) if isinstance(one, Note)]
        self._noted_last = None
        whom = [note for _, note in noted]
        before = [] if self.auditing is None else self.auditing.before(whom)
        outcome = self.machine.apply_batch(
            meta, [one for one in batch if not isinstance(one, Note)]
        )
        given = iter(outcome.replies)
        replies = [None if isinstance(one, Note) else next(given) for one in batch]
        ends = noted and noted[-1][0] == len(batch) and not noted[-1][1].outcome
        if ends and noted[-1][0]:
            _, self._noted_last = noted.pop()
            before = before[: len(noted)]
        if self.auditing is not None:
            lines = [
                (place, note, None if note.outcome else replies[place]) for place, note in noted
            ]
            self.auditing.applied(meta.index, meta.wall_ms, lines, before)
        return Outcome(cast("list[Reply]", replies), outcome.effects)

    def read_area(self, index: int) -> memoryview:
        """The body area of an entry in this node's log."""
        return entry.area_of(self._read(index))

    def freeze(self) -> HostView:
        """Freeze the state as it is now, for a snapshot."""
        return HostView(self.machine.freeze())

    def live_bytes(self) -> int:
        """Return the bytes of all bodies in all queues."""
        return sum(self.machine.stored_bytes().values())

    def restore(self, chunks: Iterator[bytes]) -> Iterator[None]:
        """Take over the state of a snapshot, in steps; nothing changes before the last of them.

        Raises `SnapshotError` if this version cannot read it.
        """
        yield from self.machine.restoring(chunks)
        self._next_mark = 0
        self._noted_last = None
        self._follow_time(self.machine.cluster_time_ms)
        self._taken_over()


def _command(plain: Sequence[Any]) -> Command:
    """Rebuild a command of the log. All were checked before they got there, so the frequent ones
    are not checked again: that is a third of their cost on a follower."""
    kind = _FREQUENT.get(plain[0])
    return from_list(list(plain)) if kind is None else kind(*plain[1:])


def term_of(batch: Sequence[Command | Note]) -> int | None:
    """The term that an entry opens if its first command is a `Lead`; otherwise None."""
    first = batch[0] if batch else None
    return first.term if type(first) is commands.Lead else None
