"""What must hold in a simulated cluster, after every step (raft.md 5, properties 1-6 and 8).

Owns the memory that the checks need: who led which term, what stands committed at each index,
who voted for whom. Looks into the nodes, never changes them. A violation is an AssertionError
that names the seed.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from node.raft.config import Outcome

if TYPE_CHECKING:
    from node.raft.journal import Journal
    from tests.support.raft_world import SimNode, World


class Checks:
    """The properties of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leader_of: dict[int, tuple[str, int]] = {}
        self._vote_of: dict[tuple[str, int], str] = {}
        self._durable_term: dict[str, int] = {}
        self.entries: dict[int, tuple[int, bytes]] = {}
        self.committed_index = 1
        self._commit_term = 0
        self._dead_logs: dict[str, list[int]] = {}
        self.disks = True

    def fail(self, what: str) -> None:
        """A property does not hold."""
        raise AssertionError(f"seed {self._world.seed}, {self._world.now:.4f} s: {what}")

    # --- told by the world ---

    def applied(self, node: SimNode, index: int, term: int, payload: bytes) -> None:
        """State-machine safety: one index, one entry, for ever; each once and in order."""
        known = self.entries.setdefault(index, (term, payload))
        if known != (term, payload):
            self.fail(f"{node.name} applied another entry at {index} than was applied before")
        if len(node.applied) > 1 and node.applied[-2][0] >= index:
            self.fail(f"{node.name} applied {index} after {node.applied[-2][0]}")

    def died(self, node: SimNode) -> None:
        """Keep what the disk of a dead node holds: it counts as a copy."""
        journal = node.open_journal(copy.deepcopy(node.storage))
        self._dead_logs[node.name] = [
            journal.term_at(index) for index in range(1, journal.last_index + 1)
        ]
        self._check_hard_state(node.name, journal)

    # --- after each step ---

    def after_step(self) -> None:
        """Everything that can be seen from outside between two steps."""
        lease_holders = []
        for node in self._world.nodes.values():
            if not node.alive or node.node._core.failure is not None:
                continue  # It says and does nothing any more.
            assert node.journal is not None
            self._check_hard_state(node.name, node.journal)
            if node.node.role == "leader":
                self._check_leader(node)
            if node.node.lease_until() > node.clock():
                lease_holders.append(node.name)
            self._check_commit(node)
        if len(lease_holders) > 1:
            self.fail(f"{lease_holders} hold a lease at once")

    def _check_hard_state(self, name: str, journal: Journal) -> None:
        term, vote = journal.getCurrentTerm(), journal.getVotedForNodeId()
        if term < self._durable_term.get(name, 0):
            self.fail(f"{name} went back to term {term}")
        self._durable_term[name] = term
        if vote is not None and self._vote_of.setdefault((name, term), vote) != vote:
            self.fail(f"{name} voted twice in term {term}")

    def _check_leader(self, node: SimNode) -> None:
        key = (node.name, node.incarnation)
        known = self._leader_of.get(node.node.term)
        if known == key:
            return
        if known is not None:
            self.fail(f"{known} and {key} lead term {node.node.term}")
        self._leader_of[node.node.term] = key
        assert node.journal is not None
        if node.journal.last_index < self.committed_index:
            self.fail(f"{node.name} leads without entry {self.committed_index}")
        for index, (term, _) in self.entries.items():
            if node.journal.term_at(index) != term:
                self.fail(f"{node.name} leads without committed entry {index}")

    def _check_commit(self, node: SimNode) -> None:
        journal, commit = node.journal, node.node.commit_index
        assert journal is not None
        if commit > journal.last_index:
            self.fail(f"{node.name} has committed {commit} of {journal.last_index}")
        if commit > self.committed_index:
            self.committed_index = commit
            self._commit_term = journal.term_at(commit)
            if self.disks:
                self._check_disks()

    def _check_disks(self) -> None:
        """The newest committed entry is on a majority of disks, not of page caches."""
        index, copies = self.committed_index, 0
        for node in self._world.nodes.values():
            if node.journal is not None:
                journal = node.journal
                copies += (
                    journal.synced_index >= index and journal.term_at(index) == self._commit_term
                )
            else:
                terms = self._dead_logs.get(node.name, [])
                copies += len(terms) >= index and terms[index - 1] == self._commit_term
        if copies <= len(self._world.nodes) // 2:
            self.fail(f"entry {index} is committed with {copies} durable copies")

    # --- at the end ---

    def at_rest(self) -> None:
        """After healing: acknowledged is everywhere once, refused is nowhere, each had one end."""
        nodes = [node for node in self._world.nodes.values() if node.alive]
        first = nodes[0].applied
        for node in nodes[1:]:
            if node.applied != first:
                self.fail(f"{node.name} and {nodes[0].name} applied different entries")
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
            elif outcome.certain and count:
                self.fail(f"{submitted} is applied after all")
            elif count > 1:
                self.fail(f"{submitted} is applied {count} times")
