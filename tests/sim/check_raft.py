"""Checks of the log while a simulated cluster runs: R1, R2, R3 and S12 of simulation.md.

Owns the memory that the checks need. Looks into nodes, never changes them. A violation ends the
run with an AssertionError that names the seed.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from fifo.machine import invariants
from node.raft import Journal
from tests.support import raft_probe

if TYPE_CHECKING:
    from node.server import Node
    from tests.sim.world import World

DIGEST_EVERY = 40
"""Entries between two comparisons of whole states: a digest costs as much as many entries."""


LATE_MS = 250
"""After its time at most, what is delayed is ready and what a lock kept is back (S8, S9)."""

IN_PLACE_SECONDS = 1.0
"""After this term without a fault, a leader has handled all that fell due before its election."""

COMMIT_SECONDS = 0.1
"""A leader whose entries wait for longer than this is not in place: what is late, commits delay."""


class RaftChecks:
    """The properties of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[int, tuple[str, int]] = {}
        self._entries: dict[int, int] = {}
        self._digests: dict[int, bytes] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._applied: dict[tuple[str, int], int] = {}
        self._frozen: dict[bytes, int] = {}
        self._in_place: tuple[str, int, float] = ("", 0, 0.0)
        self._commits: tuple[int, float] = (0, 0.0)
        self.digests_compared = 0

    def role(self, name: str, incarnation: int, role: str, term: int) -> None:
        """R1: one leader per term, and a process that starts anew is another."""
        if role != "leader":
            return
        known = self._leaders.setdefault(term, (name, incarnation))
        if known != (name, incarnation):
            self._world.fail(f"R1: {known} and {(name, incarnation)} lead term {term}")

    def late(self, name: str, seconds: float) -> None:
        """S9: a lock ended so late, by the clock of the node that ended it."""
        if self._is_in_place(name):
            self._world.happened("lock ended with a leader in place")
            if seconds * 1000 > LATE_MS:
                self._world.fail(f"S9: a lock ended {seconds:.3f} s late, and {name} led")

    def on_time(self) -> None:
        """S8: nothing waits for its time that has come. Called often after healing."""
        host = self._world.leader()
        node = None if host is None else host.running
        if host is None or node is None or raft_probe.raft_of(node) is None:
            self._in_place = ("", 0, 0.0)
            return
        now = self._world.loop.now
        applied = raft_probe.running_raft(node).applied_index
        if applied == raft_probe.running_raft(node).last_index or applied != self._commits[0]:
            self._commits = (applied, now)
        stuck = now - self._commits[1] > COMMIT_SECONDS
        if stuck or self._in_place[:2] != (host.name, raft_probe.running_raft(node).term):
            self._in_place = (host.name, raft_probe.running_raft(node).term, now)
        due_ms = node.broker.host.machine.next_due_ms()
        if due_ms is None or not self._is_in_place(host.name):
            return
        late_ms = node.broker.clock.now_ms() - due_ms
        if late_ms > LATE_MS:
            self._world.fail(f"S8: what is due waits for {late_ms} ms, and {host.name} leads")

    def _is_in_place(self, name: str) -> bool:
        leader, _, since = self._in_place
        return leader == name and self._world.loop.now - since > IN_PLACE_SECONDS

    def frozen(self, process: tuple[str, int], node: Node) -> None:
        """A node begins a snapshot: equal states at equal indexes, so equal snapshots."""
        index = self._applied.get(process, 0)
        digest = node.broker.host.machine.digest()
        self._frozen[digest] = max(index, self._frozen.get(digest, 0))
        known = self._digests.get(index)
        if known and known != digest:
            self._world.fail(
                f"S12: {process} freezes another state at {index} than was seen before"
            )

    def restored(self, process: tuple[str, int], node: Node) -> None:
        """R5: what a snapshot gives back is what some node had, and never older than what was."""
        machine = node.broker.host.machine
        invariants.check(machine.state)
        index = self._frozen.get(machine.digest())
        if index is None:
            self._world.fail(f"R5: {process} restored a state that no node had")
        elif index < self._applied.get(process, 0):
            self._world.fail(f"R5: {process} went back from {self._applied[process]} to {index}")

    def applied(self, process: tuple[str, int], index: int, payload: int, node: Node) -> bool:
        """R2, R3 and S12, after an entry was applied. Whether it was the first node to do so."""
        name, self._applied[process] = process[0], index
        known = self._entries.setdefault(index, payload)
        if known != payload:
            self._world.fail(f"R2: {name} applied another entry at {index} than was applied before")
        machine = node.broker.host.machine
        first = index not in self._digests
        if index % DIGEST_EVERY:
            self._digests.setdefault(index, b"")
            if first:
                self._durable(index)
            return first
        digest = machine.digest()
        if first:
            self._digests[index] = digest
            invariants.check(machine.state)
            self._durable(index)
        else:
            self.digests_compared += 1
            if self._digests[index] != digest:
                self._world.fail(f"S12: {name} has another state at {index} than was seen before")
        return first

    def _durable(self, index: int) -> None:
        """R3: what is applied is on a majority of disks, not of page caches."""
        hosts = list(self._world.hosts.values())
        copies = 0
        for host in hosts:
            node = host.node
            raft = None if node is None else raft_probe.raft_of(node)
            if raft is not None:
                copies += raft_probe.journal(raft).log.synced_index >= index
            elif not host.alive:
                copies += self._on_disk(host.name, host.incarnation) >= index
            else:
                copies += 1  # It starts just now: what it reads is what it had.
        if copies <= len(hosts) // 2:
            self._world.fail(f"R3: entry {index} is applied with {copies} durable copies")

    def _on_disk(self, name: str, incarnation: int) -> int:
        """The last entry on the disk of a node that does not run."""
        known = self._last.get((name, incarnation))
        if known is None:
            storage = copy.deepcopy(self._world.hosts[name].storage)
            config = self._world.config
            journal = Journal.open(storage, cluster_id=config.cluster_id, node=name)
            known = self._last[(name, incarnation)] = journal.log.last_index
        return known

    def converged(self) -> bool:
        """Whether all nodes have applied the whole of one log."""
        ends = set()
        for host in self._world.healthy():
            if host.running is None:
                return False
            raft = raft_probe.running_raft(host.running)
            ends.add((raft.last_index, raft.applied_index))
        return len(ends) == 1

    def at_rest(self) -> None:
        """S12: equal states everywhere."""
        digests = {
            host.running.broker.host.machine.digest()
            for host in self._world.healthy()
            if host.running is not None
        }
        if len(digests) != 1:
            self._world.fail("S12: the nodes end in different states")
