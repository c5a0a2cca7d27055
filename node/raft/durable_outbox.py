"""Messages that promise something about the disk, held until the disk can keep the promise.

Owns the frames that wait for a sync: acknowledgements, votes and vote requests (raft.md 3.3 and
3.5, b18). It stands between the library and the transport as the object that the library sends
through. `append_entries` is never held: entries travel while the leader's own sync runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from node.peers.message import Message, PeerNode
    from node.raft.config import RaftCounters

HELD_TYPES = frozenset({"next_node_idx", "response_vote", "request_vote"})
"""Messages that promise something about this node's disk."""


class Disk(Protocol):
    """The one thing this module asks of the journal."""

    dirty: bool
    """Whether something that was added is not durable yet."""
    gathered_end: int
    """Position after everything that was added."""
    synced_end: int
    """Position up to which everything is durable."""

    @property
    def covered_end(self) -> int:
        """Position up to which everything is durable, or will be with the sync under way."""


class Sender(Protocol):
    """The one thing this module asks of the transport."""

    def send(self, node: PeerNode, message: Message) -> bool:
        """Hand over one message; False when it certainly goes nowhere."""


class DurableOutbox:
    """The transport as the library sees it: sends, or keeps until `release`."""

    ready = True

    def __init__(self, transport: Sender, disk: Disk, counters: RaftCounters) -> None:
        self._transport = transport
        self._disk = disk
        self._counters = counters
        self.frames: list[tuple[PeerNode, Message, int]] = []
        """Messages that wait for the disk: peer, message, and the position that it stands on."""
        self.transfer_term = 0
        """The term to be stood for because its leader asked for that; 0 for none."""

    def send(self, node: PeerNode, message: Message) -> bool:
        """Send `message` now, or after the next sync where it promises something."""
        if message["type"] == "request_vote":
            # The library knows no such flag; it is true of one term only (raft.md 3.8).
            message["transfer"] = message["term"] == self.transfer_term
        if message["type"] not in HELD_TYPES or not (self._disk.dirty or self.frames):
            return self._transport.send(node, message)
        self._counters.held_frames_total += 1
        end = self._disk.gathered_end
        if not (self.frames and self._merged(node, message, end)):
            self.frames.append((node, message, end))
        return True

    def send_at_once(self, node: PeerNode, message: Message) -> bool:
        """Send what stands on durable records alone, though others are not durable yet."""
        return self._transport.send(node, message)

    def _merged(self, node: PeerNode, message: Message, end: int) -> bool:
        """Whether the frame held last, for the same peer, could say this too.

        A successful acknowledgement covers every earlier one of its term, so one frame tells
        the leader all of it; but none that the sync under way releases waits for the next.
        """
        # A refusal names a place in the leader's own log, which no later answer stands for.
        if message["type"] != "next_node_idx" or not message["success"]:
            return False
        # The last frame only: merged into an earlier one it would overtake what was said since,
        # such as a vote to the same peer.
        other, last, last_end = self.frames[-1]
        if other != node or last["type"] != "next_node_idx" or not last["success"]:
            return False
        # Another term has another leader, which must not count this. And an acknowledgement of
        # the time in which this member did not count (raft.md 4) must not come to count.
        if (last["term"], last["counted"]) != (message["term"], message["counted"]):
            return False
        # The sync under way covers the last frame and not this one: merged, they would both wait
        # for the next sync, and the leader would hear of the first a whole sync later.
        if last_end <= self._disk.covered_end < end:
            return False
        # Maxima: the answer to a frame that was sent again may name less than the one before.
        last["next_node_idx"] = max(last["next_node_idx"], message["next_node_idx"])
        last["round"] = max(last["round"], message["round"])
        self.frames[-1] = (node, last, end)
        return True

    def release(self, term: int) -> None:
        """Send what stands on durable records only, except what another term said."""
        synced_end = self._disk.synced_end
        count = 0
        while count < len(self.frames) and self.frames[count][2] <= synced_end:
            count += 1
        frames, self.frames = self.frames[:count], self.frames[count:]
        for node, message, _ in frames:
            if message["term"] == term:
                self._transport.send(node, message)
            else:
                self._counters.held_frames_dropped_total += 1

    def forget(self, node: PeerNode) -> None:
        """The connection to `node` ended: what was meant for it dies with it."""
        kept = [frame for frame in self.frames if frame[0] != node]
        self._counters.held_frames_dropped_total += len(self.frames) - len(kept)
        self.frames = kept
