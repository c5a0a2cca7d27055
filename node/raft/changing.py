"""Members that change: what follows from a configuration, and the steps of a leader (raft.md 3.11).

Owns which configuration counts here: it is taken from entries as they are appended, back as they
are cut off, from snapshots, and at the start from what the journal holds. Owns also the change that
is under way: a leader takes the next step (`configuration.py`) when the newest configuration is
committed, and an entry of its own term. Must not know addresses' use, nor when a turn is.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from node.peers.message import CONFIGURATION_BYTE, PeerNode
from node.raft import configuration as steps
from node.raft.admission import Admission
from node.raft.config import ChangeProgress, LearnerStatus
from node.raft.configuration import (
    Change,
    ChangeRefused,
    Configuration,
    HandOver,
    Waits,
    decode,
    encode,
)
from node.raft.lease import NEVER
from node.raft.members import Configurations, first_of
from node.raft.pysyncobj.library import LEADER
from node.raft.roll import State
from node.raft.transfer import best_target, keeps_up

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from node.journal.records import Entry
    from node.journal.snapshots.file import SnapshotMeta
    from node.raft.config import RaftConfig
    from node.raft.environment import RaftEnvironment

logger = logging.getLogger(__name__)


class Changing(Admission):
    """The part of a core that goes by configurations, and changes them."""

    next_step = staticmethod(steps.next_step)  # Class attribute, as those of `Elections`.

    def __init__(self, config: RaftConfig, environment: RaftEnvironment) -> None:
        self.configurations = Configurations(first_of(config))
        self.changes_due = False
        """Whether `advance_change` has something to look at."""
        self._on_configuration = environment.on_configuration
        self._settled: Configuration | None = None
        self._handed_over_at = NEVER
        super().__init__(config, environment)
        self.snapshots.keep_members(self.configurations.packed_at)

    # --- which one counts ---

    def adopt_configurations(self) -> None:
        """At the start: go by what snapshot and log say."""
        known, meta = self.configurations, self.journal.snapshot
        if meta is not None:
            known.restart(meta.index, self._held_by(meta), self.log.last_index)
        for index, entry in sorted(self.journal.noted.items()):
            if index > known.newest_index:
                known.append(index, decode(entry))
        if known.newest.number:
            self._take_up()

    def _held_by(self, meta: SnapshotMeta) -> Configuration:
        return decode(meta.members) if meta.members else self.configurations.first

    def note_entries(self, entries: Sequence[Entry], *, truncated: bool) -> None:
        """These entries were appended, after others of theirs and later indexes were cut off."""
        known = self.configurations
        changed = truncated and known.truncate(entries[0][1])
        for command, index, _ in entries:
            if command.startswith(CONFIGURATION_BYTE):
                known.append(index, decode(command))
                changed = True
        if changed:
            self._take_up()

    def note_snapshot(self, meta: SnapshotMeta) -> None:
        """This snapshot of the leader's is where the log begins now, or what is behind it."""
        if self.configurations.restart(meta.index, self._held_by(meta), self.log.last_index):
            self._take_up()

    def _take_up(self) -> None:
        """Go by the newest configuration from now on, in everything."""
        newest = self.configurations.newest
        if self.journal.snapshot is not None:
            self.configurations.forget(min(self.journal.snapshot.index, self.commit_index))
        self.follow_members(
            [voter.name for voter in newest.voters], [one.name for one in newest.learners]
        )
        self.changes_due = True
        self._follow_links()
        self.follow_journals(newest)
        logger.info(
            "event=members number=%d voters=%s learners=%s wanted=%s",
            newest.number,
            _names(newest.voters),
            _names(newest.learners) or "none",
            ",".join(newest.wanted) or "none",
        )
        self._on_configuration(newest)

    def _follow_links(self) -> None:
        """Have connections with the members of the newest configuration, and with those of before
        until it is committed: it may be taken back."""
        addresses = {
            member.name: member.address
            for one in self.configurations.since(self.commit_index)
            for member in one.members
            if member.name != self.config.name
        }
        self._transport.follow(addresses)

    @property
    def members_committed(self) -> bool:
        """Whether the newest configuration stays."""
        return self.configurations.newest_index <= self.commit_index

    # --- the change under way ---

    def become_leader(self) -> None:
        self.changes_due = True
        super().become_leader()

    def advance_change(self) -> None:
        """Once a turn, while a configuration is not committed or a change under way: what is to be
        done next, if it is time."""
        if not self.members_committed:
            return
        newest = self.configurations.newest
        if self._settled is not newest:
            self._settled = newest
            self._settle(newest)
        if self.role != LEADER or not newest.wanted:
            self.changes_due = False
        elif self.transfer is None and self._leads_for_certain():
            self._take_step(newest)

    def _settle(self, newest: Configuration) -> None:
        """A configuration is committed: who was removed hears of it, and then no more."""
        self.settle_removed(newest)
        if newest.number:
            self._follow_links()

    def _leads_for_certain(self) -> bool:
        """Whether an entry of this leader's own term is committed: until then another leader's
        configuration may be in force that this one does not know."""
        return self.log.term_at(self.commit_index) == self.term

    def _take_step(self, newest: Configuration) -> None:
        step = self.next_step(newest, self.config.name, self._level(newest), self._up())
        if isinstance(step, Configuration):
            self._append_configuration(step)
        elif isinstance(step, HandOver):
            self._hand_over(step.names)

    def _hand_over(self, names: Collection[str]) -> None:
        """Have another lead, which stays: this leader is to go."""
        now = self.clock()
        if now < self._handed_over_at + self.config.max_timeout_seconds:
            return
        able = {node: one for node, one in self.voters_progress().items() if node.id in names}
        target = best_target(able, self.log.last_index)
        if target is None:
            return
        self._handed_over_at = now
        logger.info("event=transfer target=%s reason=this leader is to be removed", target)
        self.begin_transfer(
            target, lambda why: logger.info("event=transfer_failed reason=%s", why), yields=True
        )

    def _level(self, newest: Configuration) -> set[str]:
        """The learners that have what this leader has, on a disk that counts."""
        return {one.name for one in newest.learners if self._is_level(PeerNode(one.name))}

    def _up(self) -> set[str]:
        """The other voters that keep up with this leader."""
        last = self.log.last_index
        peers = self.voters_progress().items()
        return {node.id for node, progress in peers if keeps_up(progress, last)}

    def _is_level(self, node: PeerNode) -> bool:
        progress = self.replication.peers.get(node)
        return (
            progress is not None
            and not self.is_judged_less(node)
            and progress.match_index > 0
            and keeps_up(progress, self.log.last_index)
        )

    def _append_configuration(self, configuration: Configuration) -> None:
        index = self.log.last_index + 1
        self.log.add(encode(configuration), index, self.term)
        self.log_bytes += self.log.size_at(index)
        self.configurations.append(index, configuration)
        self._take_up()
        self.ask_turn()

    # --- what an operator asks for ---

    def begin_change(self, change: Change) -> Configuration:
        """Begin a change; return its first configuration. Raises `ChangeRefused`."""
        current = self._changeable()
        found = steps.begin(current, change, self._recovering())
        for voter in found.voters:
            if not voter.journal and voter.name not in change.remove:
                raise ChangeRefused(
                    f"the journal of {voter.name!r} is not known to this leader yet; start "
                    f"{voter.name}, or remove it with the same change"
                )
        return self._append_first(found)

    def undo_change(self) -> Configuration:
        """Give the change under way up; return the configuration that does. Raises
        `ChangeRefused`."""
        return self._append_first(steps.undone(self._changeable()))

    def move_member(
        self, name: str, address: tuple[str, int], client: str, http: str
    ) -> Configuration:
        """Give a member other addresses; return that configuration. Raises `ChangeRefused`."""
        current = self._changeable()
        found = steps.moved(current, name, address, client, http, self._recovering())
        return self._append_first(found)

    def _append_first(self, first: Configuration) -> Configuration:
        """Append what begins a change, and return it with its place."""
        found = steps.placed(first, steps.Place(self.term, self.log.last_index + 1))
        self._append_configuration(found)
        return found

    def _changeable(self) -> Configuration:
        """The newest configuration, with the journals that the members have by now, where the next
        one may follow. Raises `ChangeRefused`."""
        if self.role != LEADER:
            raise ChangeRefused(f"{self.config.name} does not lead; ask the leader")
        if self.transfer is not None:
            raise ChangeRefused(f"leadership goes to {self.transfer.target.id}; ask it then")
        if not self.members_committed or not self._leads_for_certain():
            raise ChangeRefused(
                "what was appended before is not committed yet; ask again, and look whether a "
                "majority is up"
            )
        newest = self.configurations.newest
        named = (
            replace(voter, journal=self.journal_of(voter.name) or voter.journal)
            for voter in newest.voters
        )
        return replace(newest, voters=tuple(named))

    def _recovering(self) -> set[str]:
        """The voters whose journal is being replaced, as far as this leader knows."""
        return {node.id for node in self.membership.voters if self._recovers(node)}

    def _recovers(self, node: PeerNode) -> bool:
        said = self._said.get(node)
        empty = said is not None and said.state not in (State.WHOLE, State.BEGUN)
        return empty or not self.replication.peers[node].counted or self.replaces_journal(node)

    def change_progress(self) -> ChangeProgress | None:
        """The change under way, as this member sees it; None where there is none."""
        newest = self.configurations.newest
        if not newest.wanted:
            return None
        level = self._level(newest) if self.role == LEADER else set()
        learners = []
        for one in newest.learners:
            progress = self.replication.peers.get(PeerNode(one.name))
            match_index = progress.match_index if progress and self.role == LEADER else 0
            connected = self.peer_connected(PeerNode(one.name))
            learners.append(
                LearnerStatus(
                    one.name, connected, match_index, self.log.last_index, one.name in level
                )
            )
        return ChangeProgress(newest.wanted, self._waits_in_change(newest, level), tuple(learners))

    def _waits_in_change(self, newest: Configuration, level: set[str]) -> str:
        if self.role != LEADER:
            leader = self.leader
            return "a leader" if leader is None else f"the leader {leader.id}"
        if not self.members_committed or not self._leads_for_certain():
            return f"a majority of {_names(newest.voters)}"
        step = self.next_step(newest, self.config.name, level, self._up())
        if isinstance(step, Waits):
            return f"{', '.join(step.names)} to be level with the leader"
        if isinstance(step, HandOver):
            return f"one of {', '.join(step.names)} to lead"
        return "the next step"


def _names(members: Sequence[steps.Member]) -> str:
    return ",".join(member.name for member in members)
