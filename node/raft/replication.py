"""The leader's side of replication: what each peer has, and what to send it next.

Owns next and match index per peer, the byte window, and the probing that finds where two logs
agree (raft.md 3.6; b25, b26), and whether it needs a snapshot because the entries that it lacks
are gone (`snapshots/sender.py`). Sends whole batches through the transport it is given, from
memory; what is not there is read off the event loop, and only the peer that lacks it waits for
that. Must not know elections, nor any term but the one it is given.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from node.journal import limits as journal_limits
from node.journal.errors import SnapshotFailed
from node.journal.io.readers import LogReader
from node.raft import limits
from node.raft.snapshots.sender import SnapshotSender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from node.journal.io.jobs import Worker
    from node.journal.journal import Journal
    from node.journal.records import Entry
    from node.peers.message import Message, PeerNode
    from node.raft.config import RaftConfig, RaftCounters
    from node.raft.durable_outbox import Sender


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PeerProgress:
    """A peer as the leader knows it.

    While `probing`, one batch is in flight (`probe_round`, 0 for none) and `next_index` stays
    where that batch began; resets of rounds before `floor_round` are of an earlier try. While
    `sending`, it takes a snapshot and gets no entries. Not `counted`, it lost its journal and is
    brought up to date, but its word counts for nothing yet.
    """

    next_index: int
    reader: LogReader
    match_index: int = 0
    connected: bool = False
    probing: bool = True
    probe_round: int = 0
    floor_round: int = 0
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    in_flight_bytes: int = 0
    sending: SnapshotSender | None = None
    counted: bool = True
    differs: bool = False
    """Its state is another one than that of a majority: it takes everything, and must not lead."""
    replacing: SnapshotSender | None = None
    """The snapshot that replaces its state, beside the entries that it gets."""

    def probe(self, next_index: int, floor_round: int) -> None:
        """Forget what is in flight and look from `next_index` for where the logs agree."""
        self.next_index = max(next_index, self.match_index + 1)
        self.probing = True
        self.probe_round = 0
        self.floor_round = floor_round
        self.in_flight.clear()
        self.in_flight_bytes = 0

    def matched(self, index: int) -> bool:
        """The peer has everything up to `index`, durably. True when that is news."""
        while self.in_flight and self.in_flight[0][0] <= index:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
        self.next_index = max(self.next_index, index + 1)
        if index <= self.match_index:
            return False
        self.match_index = index
        return True


class Replication:
    """All peers of one leader, and the frames for them."""

    def __init__(
        self,
        peers: Iterable[PeerNode],
        config: RaftConfig,
        journal: Journal,
        sender: Sender,
        *,
        clock: Callable[[], float],
        counters: RaftCounters,
        worker: Worker,
        wake: Callable[[], None],
    ) -> None:
        """`worker` reads for the peers; `wake` asks for a turn when something was read."""
        self._config = config
        self._clock = clock
        self._counters = counters
        self._worker = worker
        self._wake = wake
        self._journal = journal
        self._log = journal.log
        self._sender = sender
        # A fixed order, so that a simulation repeats itself.
        ordered = sorted(peers, key=lambda node: node.id)
        self.peers = {node: PeerProgress(2, self._make_reader()) for node in ordered}
        self._sent_round = 0
        self.level_at = 0
        """Index of the log's last entry where no peer can be sent or asked anything before a later
        entry comes; 0 where that is not known."""
        self._sends_states = True

    def _make_reader(self) -> LogReader:
        return LogReader(self._log, self._worker, self._wake, last=lambda: self._log.last_index)

    def follow(self, peers: Iterable[PeerNode]) -> None:
        """These are the peers from now on; nothing is known of one that was none before."""
        before = self.peers
        ordered = sorted(peers, key=lambda node: node.id)
        self.peers = {node: before.get(node) or self._unknown() for node in ordered}
        for node in before.keys() - self.peers.keys():
            self._end(before[node])
        self.level_at = 0

    def _unknown(self) -> PeerProgress:
        progress = PeerProgress(2, self._make_reader())
        progress.probe(self._log.last_index + 1, self._sent_round + 1)
        return progress

    def begin(self, last_round: int) -> None:
        """A new leadership: nothing is known of anyone, every peer is probed."""
        self.level_at = 0
        self._sends_states = True
        self.end()
        for progress in self.peers.values():
            progress.match_index = 0
            progress.counted = True
            progress.differs = False
            progress.probe(self._log.last_index + 1, last_round + 1)

    def end(self) -> None:
        """This node leads no more: nothing is read, and no snapshot held, for a peer."""
        for progress in self.peers.values():
            self._end(progress)

    def _end(self, progress: PeerProgress) -> None:
        self._end_sending(progress)
        self._end_replacing(progress)
        progress.reader.stop()

    def connected(self, node: PeerNode, last_round: int) -> None:
        """A new connection: what was in flight on the old one may be lost."""
        self.level_at = 0
        progress = self.peers[node]
        progress.connected = True
        if progress.replacing is not None:
            progress.replacing.begin_again()
        if progress.sending is not None:
            progress.sending.begin_again()
            return
        known = progress.match_index + 1
        start = (
            known if progress.match_index else min(progress.next_index, self._log.last_index + 1)
        )
        progress.probe(start, last_round + 1)

    def forget(self, node: PeerNode) -> None:
        """A peer has another journal than the one from which it acknowledged."""
        progress = self.peers[node]
        progress.match_index = 0
        progress.counted = False
        progress.probe(min(progress.next_index, self._log.last_index + 1), self._sent_round + 1)
        self.level_at = 0

    def disconnected(self, node: PeerNode) -> None:
        """Nothing is sent to a peer without a connection."""
        self.peers[node].connected = False

    def acknowledged(self, node: PeerNode, message: Message) -> bool:
        """Take an answer of the current term. True when the peer now has more, or wants more."""
        progress = self.peers[node]
        round_number: int = message["round"]
        claimed: int = message["next_node_idx"] - 1
        if not (progress.counted and message["counted"]):
            self.note_loss(progress, message)
        if message["success"] and not progress.probing and progress.sending is None:
            return progress.matched(min(claimed, self._log.last_index))
        self.level_at = 0
        if progress.sending is not None:
            if not message["success"] or claimed < progress.sending.meta.index:
                return False  # It has nothing to compare before it has the snapshot.
            self._end_sending(progress)
            progress.probe(claimed + 1, round_number)
        if message["success"]:
            news = progress.matched(min(claimed, self._log.last_index))
            if progress.probing and round_number >= progress.floor_round:
                progress.probing = False
                progress.next_index = progress.match_index + 1
                news = True
            return news
        if not message["reset"] or round_number < progress.floor_round:
            return False
        self.note_forgotten(node, progress, claimed)
        # Resets of rounds sent before the next probe speak of this same gap.
        wanted, sendable = self.probe_start(claimed + 1), self._sendable_index
        # It may hold more than it can name, so the head of the log is tried first.
        at_the_head = progress.next_index <= sendable
        progress.probe(max(wanted, sendable), max(round_number, self._sent_round) + 1)
        if wanted < sendable and at_the_head and self._sends_states:
            self._begin_sending(progress)
        return True

    def note_loss(self, progress: PeerProgress, message: Message) -> None:
        """A peer that recovers has lost what it said that it had, maybe again."""
        if not message["counted"] and (progress.counted or message["reset"]):
            progress.match_index = 0
        progress.counted = message["counted"]

    def note_forgotten(self, node: PeerNode, progress: PeerProgress, has_index: int) -> None:
        """A peer that acknowledged an entry lacks it. Its folder began empty, which only a group of
        two survives; to bring it up to date is the best that can be done in any."""
        nothing_in_flight = progress.next_index == progress.match_index + 1
        if not progress.counted or not nothing_in_flight or has_index >= progress.match_index:
            return
        logger.warning(
            "event=peer_forgot peer=%s acknowledged=%s has=%s advice=the folder of a member that "
            "lost its files is started with --recover",
            node.id,
            progress.match_index,
            has_index,
        )
        progress.match_index = 0

    def snapshot_acknowledged(self, node: PeerNode, message: Message) -> bool:
        """Take an answer about a snapshot. True when the peer can be sent more."""
        self.level_at = 0
        progress = self.peers[node]
        sending, named = progress.sending, (message["index"], message["entry_term"])
        if _is_of(progress.replacing, named):
            return self._replacing_acknowledged(progress, message)
        if sending is None or not _is_of(sending, named):
            return False
        if message["done"]:
            self._end_sending(progress)
            self._counters.snapshots_sent_total += 1
            progress.probe(sending.meta.index + 1, self._sent_round + 1)
            return True
        sending.acknowledged(message, self._clock())
        return sending.wants()

    def begin_replacing(self, node: PeerNode) -> None:
        """Send a peer the newest snapshot, for its state is wrong; entries go on beside it."""
        progress = self.peers[node]
        if progress.replacing is None and progress.sending is None:
            self.level_at = 0
            progress.replacing = self._make_sender()

    def _replacing_acknowledged(self, progress: PeerProgress, message: Message) -> bool:
        sending = progress.replacing
        assert sending is not None, "the answer is about it"
        if message["done"]:
            self._end_replacing(progress)
            self._counters.snapshots_sent_total += 1
            return False
        sending.acknowledged(message, self._clock())
        return sending.wants()

    def _end_replacing(self, progress: PeerProgress) -> None:
        sending, progress.replacing = progress.replacing, None
        if sending is not None:
            sending.end()

    def keep_states(self) -> None:
        """Send no snapshot any more, until the next leadership: the state of this node is wrong."""
        self._sends_states = False
        for progress in self.peers.values():
            self._end_replacing(progress)
            if progress.sending is not None:
                self._end_sending(progress)
                progress.probe(self._log.last_index + 1, self._sent_round + 1)

    def _make_sender(self) -> SnapshotSender:
        return SnapshotSender(self._journal, self._config, self._clock(), self._worker, self._wake)

    def _begin_sending(self, progress: PeerProgress) -> None:
        progress.reader.stop()
        sending = progress.sending = self._make_sender()
        progress.next_index = sending.meta.index + 1

    def _end_sending(self, progress: PeerProgress) -> None:
        sending, progress.sending = progress.sending, None
        if sending is not None:
            sending.end()

    @property
    def _sendable_index(self) -> int:
        """The first entry that can be sent; of those below a snapshot stands, or all have it."""
        return max(2, self._log.first_whole_index)

    def probe_start(self, hint: int) -> int:
        """Where to probe after a reset: inside this log. A peer may hold more than its leader, an
        uncommitted tail of an earlier one, and name an index beyond it (b26)."""
        return min(max(hint, 2), self._log.last_index + 1)

    @property
    def unsendable_index(self) -> int:
        """The newest entry that a peer is to be sent and that is damaged on this disk; 0: none."""
        return max(
            (
                progress.next_index
                for progress in self.peers.values()
                if progress.connected
                and progress.sending is None
                and self._log.waits_for_repair(progress.next_index)
            ),
            default=0,
        )

    def wanted(self) -> bool:
        """Whether some peer can be sent entries, or is to be probed, right now."""
        last = self._log.last_index
        level = True
        for progress in self.peers.values():
            if not progress.connected:
                continue
            if progress.replacing is not None:
                level = False
                if progress.replacing.wants():
                    return True
            if progress.sending is not None:
                level = False
                if progress.sending.wants():
                    return True
            elif progress.probing:
                if progress.probe_round == 0:
                    return True
            elif progress.next_index <= last:
                level = False
                if (
                    progress.in_flight_bytes < self._config.window_bytes
                    and not progress.reader.waits(progress.next_index)
                ):
                    return True
        self.level_at = last if level else 0
        return False

    def send(self, term: int, commit_index: int, round_number: int, *, heartbeat: bool) -> bool:
        """Send every peer what it can take; with `heartbeat` everyone hears something. True where
        every connected one heard of this commit index."""
        self._sent_round = round_number
        frame = _Frame(term, commit_index, round_number)
        all_heard = True
        sendable_index = self._sendable_index
        for node, progress in self.peers.items():
            if progress.sending is not None and self._is_gone(progress, progress.sending):
                self._end_sending(progress)
            if progress.replacing is not None and self._is_gone(progress, progress.replacing):
                self._end_replacing(progress)
            if not progress.connected:
                continue
            if progress.replacing is not None:
                self._send_replacing(node, progress, progress.replacing, frame)
            if progress.sending is None and progress.next_index < sendable_index:
                self.level_at = 0
                progress.probe(sendable_index, round_number)
            if progress.sending is not None:
                self._send_snapshot(node, progress, frame)
                sent = False  # It has to hear of its leader all the same.
            elif progress.probing:
                sent = self._send_probe(node, progress, frame)
            else:
                sent = self._send_window(node, progress, frame)
            if heartbeat and not sent:
                self._send_entries(node, progress, frame, [])
            all_heard = all_heard and (heartbeat or sent)
        return all_heard

    def _is_gone(self, progress: PeerProgress, sending: SnapshotSender) -> bool:
        """Ask a silent peer anew; True for one that is gone, for a snapshot is held for it."""
        if sending.reading:
            return False
        silent_seconds = self._clock() - sending.heard_at
        if silent_seconds >= limits.SNAPSHOT_PIN_SECONDS:
            return True
        if silent_seconds >= limits.SNAPSHOT_ASK_SECONDS and progress.connected:
            heard_at = sending.heard_at
            sending.begin_again()
            sending.heard_at = heard_at
        return False

    def _send_replacing(
        self, node: PeerNode, progress: PeerProgress, sending: SnapshotSender, frame: _Frame
    ) -> None:
        try:
            self._send_pieces(node, progress, sending, frame)
        except SnapshotFailed:
            self._end_replacing(progress)  # The peer asks again, for a newer one.

    def _send_pieces(
        self, node: PeerNode, progress: PeerProgress, sending: SnapshotSender, frame: _Frame
    ) -> None:
        """As much of a snapshot as there is room for, and as one turn may take."""
        budget_bytes = limits.SNAPSHOT_SEND_BYTES_PER_TURN
        while progress.connected and budget_bytes > 0 and sending.wants():
            before_bytes = sending.in_flight_bytes
            message = sending.next_frame(frame.term, self._clock())
            if not self._sender.send(node, message):
                break
            budget_bytes -= max(sending.in_flight_bytes - before_bytes, 1)

    def _send_snapshot(self, node: PeerNode, progress: PeerProgress, frame: _Frame) -> None:
        assert progress.sending is not None
        try:
            self._send_pieces(node, progress, progress.sending, frame)
        except SnapshotFailed:
            # It was needed for something else, and the newest one is sent instead.
            self._end_sending(progress)
            self._begin_sending(progress)

    def _send_probe(self, node: PeerNode, progress: PeerProgress, frame: _Frame) -> bool:
        if progress.probe_round:
            return False
        progress.probe_round = progress.floor_round = frame.round_number
        # Of use without entries too, where these would have to be read first.
        entries = self._log.cached_entries(
            progress.next_index, self._config.batch_bytes, journal_limits.READ_ENTRIES_MAX
        )
        self._send_entries(node, progress, frame, entries)
        return True

    def _send_window(self, node: PeerNode, progress: PeerProgress, frame: _Frame) -> bool:
        sent, last = False, self._log.last_index
        budget_bytes, budget_entries = limits.SEND_BYTES_PER_TURN, journal_limits.READ_ENTRIES_MAX
        while (
            budget_bytes > 0
            and budget_entries > 0
            and progress.connected
            and progress.next_index <= last
            and progress.in_flight_bytes < self._config.window_bytes
        ):
            found = frame.messages.get((progress.next_index, budget_entries))
            if found is None:
                found = self._window_message(progress, frame, budget_entries)
                if found is None:
                    break
            message, count, size = found
            if not self._sender.send(node, message):
                break
            end = progress.next_index + count - 1
            progress.in_flight.append((end, size))
            progress.in_flight_bytes += size
            progress.next_index = end + 1
            budget_bytes -= size
            budget_entries -= count
            sent = True
        return sent

    def _window_message(
        self, progress: PeerProgress, frame: _Frame, count_max: int
    ) -> tuple[Message, int, int] | None:
        """The next entries, how many and the bytes of their commands; peers that are level are sent
        the very same message. None while they are read."""
        first = progress.next_index
        previous = first - 1
        entries = progress.reader.take(first, self._config.batch_bytes, count_max)
        if not entries:
            return None
        message = self._message(frame, previous, self._log.term_at(previous), entries)
        count = len(entries)
        size = self._log.command_bytes(first, previous + count)
        found = frame.messages[first, count_max] = message, count, size
        return found

    def _send_entries(
        self,
        node: PeerNode,
        progress: PeerProgress,
        frame: _Frame,
        entries: list[Entry],
    ) -> bool:
        previous = progress.next_index - 1
        sending = progress.sending
        if sending is not None and previous == sending.meta.index:
            previous_term = sending.meta.term  # The log may begin later by now.
        else:
            previous_term = self._log.term_at(previous)
        return self._sender.send(node, self._message(frame, previous, previous_term, entries))

    def _message(
        self,
        frame: _Frame,
        previous: int,
        previous_term: int,
        entries: list[Entry],
    ) -> Message:
        return {
            "type": "append_entries",
            "term": frame.term,
            "commit_index": frame.commit_index,
            "prevLogIdx": previous,
            "prevLogTerm": previous_term,
            "round": frame.round_number,
            "entries": entries,
        }


def _is_of(sending: SnapshotSender | None, named: tuple[int, int]) -> bool:
    """Whether it sends the snapshot of this index and term."""
    return sending is not None and (sending.meta.index, sending.meta.term) == named


@dataclass(frozen=True, slots=True)
class _Frame:
    """Common fields of the frames of one round, and the messages made for it, by first index and
    number of entries asked for: (message, entries, bytes of their commands)."""

    term: int
    commit_index: int
    round_number: int
    messages: dict[tuple[int, int], tuple[Message, int, int]] = field(default_factory=dict)
