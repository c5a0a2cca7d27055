"""Checks of the log while a simulated cluster runs: R1, R2, R3 and S12 of simulation.md.

Owns the memory that the checks need. Looks into nodes, never changes them. A violation ends the
run with an AssertionError that names the seed.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

from fifo.machine import invariants
from node.raft import Journal
from tests.support import raft_probe

if TYPE_CHECKING:
    from collections.abc import Collection

    from node.raft import Configuration
    from node.server import Node
    from tests.sim.hosts import Host
    from tests.sim.world import World

DIGEST_EVERY = 40
"""Entries between two comparisons of whole states: a digest costs as much as many entries."""


LATE_MS = 250
"""After its time at most, what is delayed is ready and what a lock kept is back (S8, S9)."""

IN_PLACE_SECONDS = 1.0
"""After this term without a fault, a leader has handled all that fell due before its election."""

LOOKED_AT = 200
"""Entries that were applied last, of which a new leader has to have all: who lacks an older one
lacks these too."""

COMMIT_SECONDS = 0.1
"""A leader whose entries wait for longer than this is not in place: what is late, commits delay."""


class Owed(NamedTuple):
    """Loss of the disk of a host: up to `applied` it has to get it back. Up to `promised` an
    acknowledgement may be on its way, by which a leader may still commit; what is not committed by
    that may be replaced, and never come again."""

    applied: int
    promised: int


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
        self.newest: Configuration | None = None
        """The newest configuration that is known to be committed; None: the log has none."""
        self._terms: dict[int, int] = {}
        self._owed: dict[str, list[Owed]] = {}

    # --- members and their disks ---

    @property
    def members(self) -> Collection[str]:
        """The voters by the newest configuration that is committed, or all that there are."""
        voters = self._world.config.nodes if self.newest is None else self.newest.voters
        return [one.name for one in voters]

    def loses(self, host: Host) -> None:
        """The disk of a host is about to lose something: what it has promised stands, and counts as
        a copy until it has got that back."""
        promised = self._durable_end(host)
        applied = min(promised, max(self._entries, default=0))
        if applied:
            self._owed.setdefault(host.name, []).append(Owed(applied, promised))

    def keeps(self, host: Host, end: int) -> None:
        """R3: what a node took for durable, up to `end`, is on the disk that it leaves."""
        found = self._on_disk(host.name, host.incarnation)
        if found < end:
            self._world.fail(f"R3: {host.name} took {end} entries for durable, and has {found}")

    def lacks(self, host: Host) -> bool:
        """Whether a host has not got back yet what its disk has lost."""
        owed = self._owed.get(host.name)
        if owed is None:
            return False
        raft = None if host.node is None else raft_probe.raft_of(host.node)
        applied = max(one.applied for one in owed)
        if raft is None or raft.waits_for() is not None or raft_probe.synced_end(raft) < applied:
            return True
        del self._owed[host.name]
        return False

    def _durable_end(self, host: Host) -> int:
        raft = None if host.node is None else raft_probe.raft_of(host.node)
        if raft is not None:
            return raft_probe.synced_end(raft)
        return self._on_disk(host.name, host.incarnation)

    def _note_configuration(self, node: Node) -> None:
        """Know the newest configuration that is committed: of each number there is one."""
        raft = raft_probe.raft_of(node)
        if raft is None:
            return
        found = raft_probe.configuration_at(raft, raft.commit_index)
        newest = self.newest
        if found.number and newest is not None and found.number == newest.number:
            if found != newest:
                self._world.fail(f"R2: two configurations {found.number} were committed")
        elif newest is None or found.number > newest.number:
            self.newest = found if found.number else newest

    def counts(self) -> None:
        """No removed member, unknown journal or copy of files counts with any leader of the newest
        term: one that was cut off, and deposed, knows of no removal since."""
        found = [
            (host, raft_probe.raft_of(host.running))
            for host in self._world.hosts.values()
            if host.running is not None
        ]
        newest = max((raft.term for _, raft in found if raft is not None), default=0)
        for host, raft in found:
            if raft is None or raft.role != "leader" or raft.term < newest:
                continue
            for name, (journal, open_id) in raft_probe.counted(raft).items():
                if self.newest is not None and self.newest.was_removed(journal):
                    self._world.fail(f"I1: {name} was removed, and counts with {host.name}")
                other = self._world.hosts[name]
                own = None if other.node is None else raft_probe.raft_of(other.node)
                papers = None if own is None else raft_probe.journal(own).passport
                if papers is None or papers.open_id != open_id:
                    continue  # Another process of it is gone, and that is not known there yet.
                if self.lacks(other):
                    self._world.fail(
                        f"I2: {name} lacks what it promised, and counts with {host.name}"
                    )

    def _leads(self, name: str) -> None:
        """A new leader is a voter, was not removed, and has all that was applied before."""
        node = self._world.hosts[name].node
        raft = None if node is None else raft_probe.raft_of(node)
        if raft is None:
            return
        log, papers = raft_probe.journal(raft).log, raft_probe.journal(raft).passport
        if name not in [one.name for one in raft.configuration.voters]:
            self._world.fail(f"I3: {name} leads, and is no voter of {raft.configuration}")
        if papers and self.newest is not None and self.newest.was_removed(papers.journal):
            self._world.fail(f"I1: {name} leads, and was removed")
        for index, term in list(self._terms.items())[-LOOKED_AT:]:
            if term >= raft.term or index < log.first_index:
                continue
            if index > log.last_index or log.term_at(index) != term:
                self._world.fail(f"R4: {name} leads without entry {index}, which was applied")

    # --- the log ---

    def role(self, name: str, incarnation: int, role: str, term: int) -> None:
        """R1: one leader per term, and a process that starts anew is another."""
        if role != "leader":
            return
        known = self._leaders.setdefault(term, (name, incarnation))
        if known != (name, incarnation):
            self._world.fail(f"R1: {known} and {(name, incarnation)} lead term {term}")
        self._leads(name)

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
        if first:
            self._note_configuration(node)
            self.counts()
        if index % DIGEST_EVERY:
            self._digests.setdefault(index, b"")
            if first:
                self._durable(index, node)
            return first
        digest = machine.digest()
        if first:
            self._digests[index] = digest
            invariants.check(machine.state)
            self._durable(index, node)
        else:
            self.digests_compared += 1
            if self._digests[index] != digest:
                self._world.fail(f"S12: {name} has another state at {index} than was seen before")
        return first

    def _durable(self, index: int, node: Node) -> None:
        """R3: what is applied is on a majority of disks, not of page caches: of the voters by the
        configuration of that entry, or by one of those that were appended behind it."""
        raft = raft_probe.raft_of(node)
        if raft is None:
            return  # It starts just now, and applies what others have committed.
        self._terms[index] = raft_probe.journal(raft).log.term_at(index)
        copies = []
        for names in raft_probe.voters_since(raft, index):
            copies.append(sum(self._has(self._world.hosts[name], index) for name in names))
            if 2 * copies[-1] > len(names):
                return
        self._world.fail(f"R3: entry {index} is applied with {copies} durable copies")

    def _has(self, host: Host, index: int) -> bool:
        """Whether a host's disk has an entry, or had it and has not got it back yet."""
        if any(one.promised >= index for one in self._owed.get(host.name, ())):
            return True
        if host.alive and (host.node is None or raft_probe.raft_of(host.node) is None):
            return True  # It starts just now: what it reads is what it had.
        return self._durable_end(host) >= index

    def _on_disk(self, name: str, incarnation: int) -> int:
        """The last entry on the disk of a node that does not run."""
        known = self._last.get((name, incarnation))
        if known is None:
            storage = copy.deepcopy(self._world.hosts[name].storage)
            storage.capacity_bytes = None
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
