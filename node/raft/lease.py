"""Rounds and the lease they prove (raft.md 3.8).

Owns the numbering of what a leader sends and the time each round was sent. A majority that
acknowledges, in the current term, a round sent at `s` shows that no later leader existed at `s`;
with stickiness and a bound on clock rates none can exist before `s + lease`. The time of receipt
proves nothing, so it is not even an argument here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node.peers.message import PeerNode
    from node.raft.membership import Membership

NEVER = float("-inf")


class Lease:
    """Send times of one leader's rounds, and who answered which."""

    def __init__(self, membership: Membership, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._membership = membership
        self._answered: dict[PeerNode, float] = dict.fromkeys(membership.voters, NEVER)
        self._sent: deque[tuple[int, float]] = deque()
        self._sent_at: dict[int, float] = {}
        self._given_up = False
        self.round = 0

    def begin(self) -> None:
        """A new leadership: nothing is proven, and no earlier round counts. Round numbers go on,
        so that no answer can be taken for an answer to a later round."""
        self._given_up = False
        self._answered = dict.fromkeys(self._answered, NEVER)
        self._sent.clear()
        self._sent_at.clear()

    def follow(self) -> None:
        """The voters are others now: the answers of those that stay count on."""
        before = self._answered
        self._answered = {node: before.get(node, NEVER) for node in self._membership.voters}

    def give_up(self) -> None:
        """Take no lease any more in this leadership: another node was asked to stand."""
        self._given_up = True

    def next_round(self, now: float) -> int:
        """The number of a round that is sent at `now`."""
        self.round += 1
        self._sent.append((self.round, now))
        self._sent_at[self.round] = now
        while self._sent[0][1] < now - self._lease_seconds:
            # Older than a lease lasts: an answer to it proves nothing any more.
            del self._sent_at[self._sent.popleft()[0]]
        return self.round

    def answered(self, peer: PeerNode, round_number: int) -> None:
        """`peer` acknowledged this round in the current term; a learner proves nothing."""
        sent_at, before = self._sent_at.get(round_number), self._answered.get(peer)
        if sent_at is not None and before is not None and sent_at > before:
            self._answered[peer] = sent_at

    def connection_ended(self, peer: PeerNode) -> None:
        """Count no answer of `peer` before it answers again: without a majority of connections
        there is no lease, though what was proven would last a little longer."""
        if peer in self._answered:
            self._answered[peer] = NEVER

    def led_at(self, now: float) -> float:
        """When the newest round was sent that a majority answered: by then no later leader had
        been elected. `NEVER` where nothing is proven."""
        proven = self._membership.reached_with_self(self._answered.values())
        return now if proven is None else proven  # Alone, and so the only possible leader.

    def until(self, now: float) -> float:
        """The instant on the leader's clock until which promises of this leader may last."""
        if self._given_up:
            return 0.0
        led_at = self.led_at(now)
        return led_at + self._lease_seconds if led_at != NEVER else 0.0
