"""The invariants of a simulated cluster, after every step (raft.md 5, properties 1-6 and 8).

Owns the memory that the checks need: who led which term, what stands committed at each index,
who voted for whom. Looks into the nodes, never changes them. A violation is an AssertionError
that names the seed.
"""

from __future__ import annotations

import copy
from math import inf
from typing import TYPE_CHECKING

from node.raft.config import Outcome
from tests.support import raft_probe

if TYPE_CHECKING:
    from node.journal.journal import Journal
    from node.raft.configuration import Configuration
    from tests.support.raft_world import SimNode, World

ALONE_SECONDS = 0.75
"""After the last answer of a majority a leader steps down in 0.6 s of its own clock, and a turn."""


class Checks:
    """The properties of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leader_of: dict[int, tuple[str, int]] = {}
        self._elected_at: dict[int, float] = {}
        self._vote_of: dict[tuple[str, int], str] = {}
        self._durable_term: dict[str, int] = {}
        self.entries: dict[int, tuple[int, bytes]] = {}
        self.committed_index = 1
        self._commit_term = 0
        self._known_in_term: dict[int, int] = {}
        self._dead_logs: dict[str, tuple[int, list[int]]] = {}
        self._lost_logs: dict[str, list[tuple[int, list[int]]]] = {}
        self._applied_index: dict[tuple[str, int], int] = {}
        self._snapshot_index: dict[str, int] = {}
        self._leading: set[str] = set()
        self._heard: dict[tuple[str, int, int], float] = {}
        self._copied = (0, 0)
        self._voters: list[list[str]] = []
        """Of the configurations that may have committed `committed_index`: the one of that entry,
        and those that were appended behind it by then."""
        self.configurations: dict[int, Configuration] = {}
        """Those that were committed, by number."""
        self._copies: dict[str, bool] = {}
        self.disks = True
        self.alone = True

    def fail(self, what: str) -> None:
        """A property does not hold."""
        raise AssertionError(f"seed {self._world.seed}, {self._world.now:.4f} s: {what}")

    # --- reported by the world ---

    def applied(self, node: SimNode, index: int, term: int, payload: bytes) -> None:
        """State-machine safety: one index, one entry, for ever; each once and in order."""
        known = self.entries.setdefault(index, (term, payload))
        self._known_in_term.setdefault(index, node.node.term)
        if known != (term, payload):
            self.fail(f"{node.name} applied another entry at {index} than was applied before")
        if len(node.applied) > 1 and node.applied[-2][0] >= index:
            self.fail(f"{node.name} applied {index} after {node.applied[-2][0]}")

    def died(self, node: SimNode) -> None:
        """Keep what the disk of a dead node holds: it counts as a copy."""
        journal = node.open_journal(copy.deepcopy(node.storage))
        first = journal.log.first_index
        self._dead_logs[node.name] = (
            first,
            [journal.log.term_at(index) for index in range(first, journal.log.last_index + 1)],
        )
        self._check_hard_state(node.name, journal)
        self._check_snapshot(node.name, journal)

    def gave_up(self, node: SimNode) -> None:
        """A process gave its journal up: what was in it counts as a copy no more than that of a
        disk which is gone."""
        assert node.journal is not None
        log = node.journal.log
        first, last = log.first_index, log.synced_index
        terms = [log.term_at(index) for index in range(first, last + 1)]
        self._dead_logs[node.name] = first, terms
        self.lost(node)

    def lost(self, node: SimNode) -> None:
        """The disk of a dead node is gone. What it promised is still true: its votes stand, but
        those for itself that no other node can know of, and what it had counts as a copy until it
        has a voice again."""
        if node.name in self._dead_logs:
            self._lost_logs.setdefault(node.name, []).append(self._dead_logs.pop(node.name))
        self._durable_term.pop(node.name, None)
        self._snapshot_index.pop(node.name, None)
        for voter, term in [*self._vote_of]:
            own = self._vote_of[voter, term] == node.name == voter
            if own and term not in self._leader_of:
                del self._vote_of[voter, term]

    def restored(self, node: SimNode, applied: list[tuple[int, int, bytes]]) -> None:
        """R5: a snapshot is what applying everything up to it gives, and more than there was."""
        assert node.journal is not None
        assert node.journal.snapshot is not None
        index = node.journal.snapshot.index
        expected = [(at, *self.entries[at]) for at in sorted(self.entries) if at <= index]
        if applied != expected:
            self.fail(f"{node.name} restored another state at {index} than a replay gives")
        if node.applied and node.applied[-1][0] >= index:
            self.fail(f"{node.name} went back from {node.applied[-1][0]} to {index}")
        self._world.happened("installed" if node.applied or node.alive else "restored")

    def resumed(self, node: SimNode) -> None:
        """Note that a paused node heard no member: a leader's time alone counts from now. (The last
        step may lie far back: where all others are down too, nothing happens.)"""
        if node.alive:
            self._heard[node.name, node.incarnation, node.node.term] = node.clock()

    # --- after each step ---

    def after_step(self) -> None:
        """Everything that can be seen from outside between two steps: of the nodes that this one
        touched, and of all what changes with time alone."""
        touched = []
        leases_moved = False
        for node in self._world.nodes.values():
            if node.touched:
                node.touched = False
                touched.append(node)
                leases_moved |= self._look(node)
            elif node.name in self._leading and self.alone:
                self._check_alone(node)
        if leases_moved:
            self._check_leases()
        if touched and self.disks and self.committed_index > 1:
            self._check_disks(touched)

    def look_everywhere(self) -> None:
        """The same, of all nodes: what was done did not come by way of the world."""
        for node in self._world.nodes.values():
            node.touched = True
        self.after_step()

    def _look(self, node: SimNode) -> bool:
        """Everything about one node that cannot change while nothing is done to it. Whether leases
        have to be looked at: a follower neither holds one nor stands under one."""
        self._leading.discard(node.name)
        if not node.alive or raft_probe.core(node.node).failure is not None:
            return True  # It says and does nothing any more.
        raft, journal = node.node, node.journal
        assert journal is not None
        if self._lost_logs and not node.recovering:
            self._lost_logs.pop(node.name, None)
        self._check_hard_state(node.name, journal)
        self._check_snapshot(node.name, journal)
        self._check_applied(node, raft.applied_index)
        self._check_waiting(node, raft.applied_index)
        role = raft.role
        if role == "leader":
            self._leading.add(node.name)
            self._check_leader(node)
            self._hear(node)
            if self.alone:
                self._check_alone(node)
        self._check_commit(node, journal, raft.commit_index)
        return role != "follower"

    def _check_leases(self) -> None:
        """Each was proven before any later leader was elected, whether or not two overlap: the
        promises of a lease rest on that (renewal.md). And who is asked to stand is asked after the
        lease was given up. Time alone only ends them."""
        nodes = self._world.nodes
        leading = (nodes[name] for name in sorted(self._leading))
        holders = [node for node in leading if node.node.lease_until() > node.clock()]
        for node in holders:
            proven_at = (
                node.node.lease_until() - node.config.lease_seconds - node.offset
            ) / node.rate
            for term, elected_at in self._elected_at.items():
                alone = raft_probe.core(node.node).membership.alone
                if term > node.node.term and proven_at > elected_at and not alone:
                    self.fail(f"{node.name} proves a lease after the election of term {term}")
        if len(holders) > 1:
            self._world.happened("leases overlapped")
        holder_of = {holder.node.term: holder for holder in holders}
        for node in nodes.values() if holders else ():
            if not node.alive or node.node.role != "candidate":
                continue
            term = node.node.term
            if raft_probe.core(node.node).outbox.transfer_term == term and term - 1 in holder_of:
                asker = holder_of[term - 1]
                self.fail(f"{node.name} was asked to stand under the lease of {asker.name}")

    def _check_hard_state(self, name: str, journal: Journal) -> None:
        """Check that no durable term or vote is forgotten. One that is not on the disk yet may be:
        no member was notified of it, for a leader has the votes that are counted here."""
        if not journal.log.term_synced:
            return
        term, vote = journal.log.term, journal.log.voted_for
        if term < self._durable_term.get(name, 0):
            self.fail(f"{name} went back to term {term}")
        self._durable_term[name] = term
        if vote is not None and self._vote_of.setdefault((name, term), vote) != vote:
            self.fail(f"{name} voted twice in term {term}")

    def _check_snapshot(self, name: str, journal: Journal) -> None:
        snapshot, first_index = journal.snapshot, journal.log.first_index
        index = 0 if snapshot is None else snapshot.index
        if index < self._snapshot_index.get(name, 0):
            self.fail(f"{name} went back to snapshot {index}")
        self._snapshot_index[name] = index
        if first_index > 1 and index <= first_index:
            self.fail(f"{name} has a log from {first_index} on and snapshot {index}")
        if len(journal.log) == 0:
            self.fail(f"{name} has an empty log")

    def _check_applied(self, node: SimNode, applied_index: int) -> None:
        key = (node.name, node.incarnation)
        if applied_index < self._applied_index.get(key, 0):
            self.fail(f"{node.name} went back to {applied_index}")
        self._applied_index[key] = applied_index

    def _check_leader(self, node: SimNode) -> None:
        key = (node.name, node.incarnation)
        if not raft_probe.core(node.node).membership.votes:
            self.fail(f"{node.name} leads, and is no voter of {node.node.configuration}")
        known = self._leader_of.get(node.node.term)
        if known == key:
            return
        if known is not None:
            self.fail(f"{known} and {key} lead term {node.node.term}")
        self._leader_of[node.node.term] = key
        self._elected_at[node.node.term] = self._world.now
        self._check_votes(node)
        self._check_membership(node)
        assert node.journal is not None
        journal = node.journal
        for index, (term, _) in self.entries.items():
            if self._known_in_term[index] >= node.node.term or index < journal.log.first_index:
                continue  # A leader late of its own term need not know what came after it.
            if index > journal.log.last_index or journal.log.term_at(index) != term:
                self.fail(f"{node.name} leads without committed entry {index}")

    def _check_votes(self, node: SimNode) -> None:
        """Check that a leader has the votes of a majority, each counted once (b28)."""
        term = node.node.term
        voters = node.node.configuration.voters
        votes = [self._vote_of.get((voter.name, term)) for voter in voters]
        if votes.count(node.name) <= len(votes) // 2:
            self.fail(f"{node.name} leads term {term} with the votes {votes}")

    def _check_membership(self, node: SimNode) -> None:
        """Check that a new leader was not removed, and knows each configuration that was committed
        before."""
        known = node.node.configuration
        newest = max(self.configurations, default=0)
        if known.number < newest:
            self.fail(f"{node.name} leads by configuration {known.number}, after {newest}")
        assert node.journal is not None
        papers = node.journal.passport
        gone = newest and self.configurations[newest].was_removed
        if papers is not None and gone and gone(papers.journal):
            self.fail(f"{node.name} leads, and was removed")

    def _check_configuration(self, node: SimNode, commit: int) -> None:
        """Check that of each number one configuration is committed, and no other one anywhere."""
        found = raft_probe.core(node.node).configurations.at(commit)
        if found.number and self.configurations.setdefault(found.number, found) != found:
            self.fail(f"{node.name} has another configuration {found.number} than was committed")

    def _check_waiting(self, node: SimNode, applied_index: int) -> None:
        """Check that no caller waits for an entry applied here, or got with a snapshot (b22)."""
        waited_for = raft_probe.waiting_indexes(node.node) + raft_probe.left_indexes(node.node)
        if node.paused or not waited_for:
            return
        first = min(waited_for)
        if first <= applied_index:
            self.fail(f"{node.name} left entry {first} without an outcome")

    def _hear(self, node: SimNode) -> None:
        """Remember when a majority last answered a leader."""
        key = (node.name, node.incarnation, node.node.term)
        answers = sorted(raft_probe.core(node.node).last_response.values(), reverse=True)
        others = raft_probe.core(node.node).membership.peers_needed
        answered = answers[others - 1] if others else inf
        self._heard[key] = max(self._heard.get(key, 0.0), answered)

    def _check_alone(self, node: SimNode) -> None:
        """A leader that hears no majority stops believing in itself (b12)."""
        key = (node.name, node.incarnation, node.node.term)
        since = self._heard[key]
        if not node.paused and node.clock() > since + ALONE_SECONDS:
            self.fail(f"{node.name} leads term {node.node.term} alone since {since:.2f}")

    def _check_commit(self, node: SimNode, journal: Journal, commit: int) -> None:
        if commit > journal.log.last_index:
            self.fail(f"{node.name} has committed {commit} of {journal.log.last_index}")
        if commit > self.committed_index:
            self.committed_index = commit
            self._commit_term = journal.log.term_at(commit)
            since = raft_probe.core(node.node).configurations.since(commit)
            self._voters = [[voter.name for voter in one.voters] for one in since]
        self._check_configuration(node, commit)

    def _check_disks(self, touched: list[SimNode]) -> None:
        """The newest committed entry is on a majority of disks, not of page caches."""
        newest = (self.committed_index, self._commit_term)
        looked_at = touched if newest == self._copied else self._world.nodes.values()
        self._copied = newest
        for node in looked_at:
            self._copies[node.name] = self._has(node, self.committed_index)
        copies = [sum(self._copies.get(name, False) for name in names) for names in self._voters]
        if all(2 * count <= len(of) for count, of in zip(copies, self._voters, strict=True)):
            self.fail(f"entry {self.committed_index} is committed with {copies} durable copies")

    def _has(self, node: SimNode, index: int) -> bool:
        journal = node.journal
        if (
            journal is not None
            and journal.log.synced_index >= index
            and (index < journal.log.first_index or journal.log.term_at(index) == self._commit_term)
        ):
            return True
        logs = [*self._lost_logs.get(node.name, ())]
        if journal is None:
            logs.append(self._dead_logs.get(node.name, (1, [])))
        return any(
            index < first or terms[index - first : index - first + 1] == [self._commit_term]
            for first, terms in logs
        )

    # --- at the end ---

    def at_rest(self) -> None:
        """After healing: acknowledged is everywhere once, refused is nowhere, each had one end."""
        nodes = [node for node in self._world.members() if node.alive]
        first = nodes[0].applied
        for node in nodes[1:]:
            if node.applied != first:
                self.fail(f"{node.name} and {nodes[0].name} applied different entries")
        for node in nodes:
            for index, payload in node.state.pointed_to():
                if bytes(node.node.read(index)) != payload:
                    self.fail(f"{node.name} does not read entry {index} as it was written")
        times: dict[bytes, int] = {}
        for _, _, payload in first:
            times[payload] = times.get(payload, 0) + 1
        for submitted in self._world.submitted:
            if len(submitted.outcomes) != 1:
                self.fail(f"{submitted} has {len(submitted.outcomes)} outcomes")
            outcome, index = submitted.outcomes[0]
            count = times.get(submitted.payload, 0)
            if outcome is Outcome.COMMITTED:
                at = self.entries.get(index)
                if count != 1 or at is None or at[1] != submitted.payload:
                    self.fail(f"{submitted} is applied {count} times")
            elif outcome in raft_probe.NEVER_APPLIED and count:
                self.fail(f"{submitted} is applied after all")
            elif count > 1:
                self.fail(f"{submitted} is applied {count} times")
