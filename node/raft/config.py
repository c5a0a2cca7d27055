"""Configuration of a member, outcomes of submissions, and status for operators.

Plain values without behaviour beyond their own checks. The reasons for the defaults stand with
the constants in `limits.py`; a field added to `RaftConfig` needs its check in `validate`.
"""

from __future__ import annotations

import enum
import ipaddress
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from node.journal import limits as journal_limits
from node.peers import limits as peers_limits
from node.raft import limits
from node.raft.errors import RaftError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from node.journal.journal import JournalStats
    from node.peers.tls import PeerTls
    from node.raft.room import Room

CLUSTER_ID_BYTES = 16


class ConfigInvalid(RaftError):
    """A configuration that cannot work; the message names the field."""


class EntryTooLarge(RaftError):
    """An entry over `entry_bytes_max` was submitted: the caller has to split or refuse it."""


class Outcome(enum.Enum):
    """Outcome of a submitted entry."""

    COMMITTED = "committed"
    NOT_LEADER = "not_leader"
    QUEUE_FULL = "queue_full"
    DISCARDED = "discarded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Configuration of one node of one cluster.

    `peers` are the other members by name, with the address they listen on, as long as the log names
    no members. `secret` proves membership at connect time; it may be missing only where `tls` does
    that, or every address is loopback. `joins`: this node is none of the members yet, and `peers`
    are some of them. `address` is where the others reach this node (None: at `bind`), `clients`
    where clients reach each member: the addresses of its two listeners, by name.
    All times are seconds.
    """

    name: str
    peers: Mapping[str, tuple[str, int]]
    bind: tuple[str, int]
    cluster_id: bytes
    secret: bytes | None = field(default=None, repr=False)
    tls: PeerTls | None = None
    joins: bool = False
    address: tuple[str, int] | None = None
    clients: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    heartbeat_seconds: float = limits.HEARTBEAT_SECONDS
    min_timeout_seconds: float = limits.RAFT_MIN_TIMEOUT_SECONDS
    max_timeout_seconds: float = limits.RAFT_MAX_TIMEOUT_SECONDS
    connection_seconds: float = limits.CONNECTION_SECONDS
    submit_seconds: float = limits.SUBMIT_SECONDS
    entry_bytes_max: int = peers_limits.ENTRY_BYTES_MAX
    batch_bytes: int = limits.BATCH_BYTES
    window_bytes: int = limits.WINDOW_BYTES
    uncommitted_bytes_max: int = limits.UNCOMMITTED_BYTES_MAX
    unsynced_bytes_max: int = limits.UNSYNCED_BYTES_MAX
    queue_commands_max: int = limits.QUEUE_COMMANDS_MAX
    queue_bytes_max: int = limits.QUEUE_BYTES_MAX
    snapshot_bytes: int = limits.SNAPSHOT_BYTES
    snapshot_chunk_bytes: int = limits.SNAPSHOT_CHUNK_BYTES
    disk_low_bytes: int = 0
    """The operator's low mark of the disk (`Journal.low_bytes`); 0: room is never short."""
    slice_steps: int = limits.SLICE_STEPS
    scrub_first_seconds: float = limits.SCRUB_FIRST_SECONDS
    scrub_again_seconds: float = limits.SCRUB_AGAIN_SECONDS

    def __post_init__(self) -> None:
        self.validate()

    @property
    def lease_seconds(self) -> float:
        """Seconds that a lease lasts, from the sending of a round that a majority answered."""
        return min(self.min_timeout_seconds * limits.LEASE_FRACTION, limits.LEASE_SECONDS_MAX)

    def validate(self) -> None:
        """Raise `ConfigInvalid` for values that would lose safety or never work."""
        for name in (self.name, *self.peers):
            if not 1 <= len(name.encode()) <= journal_limits.NODE_NAME_BYTES_MAX:
                raise ConfigInvalid(
                    f"node name {name!r} has {len(name.encode())} bytes, "
                    f"allowed are 1 to {journal_limits.NODE_NAME_BYTES_MAX}"
                )
        if self.name in self.peers:
            raise ConfigInvalid(f"node {self.name!r} is named among its own peers")
        if len(self.cluster_id) != CLUSTER_ID_BYTES:
            raise ConfigInvalid(
                f"cluster_id has {len(self.cluster_id)} bytes, must have {CLUSTER_ID_BYTES}"
            )
        if not self.bind[0]:
            raise ConfigInvalid("bind must name an address of this node, not all interfaces")
        if self.min_timeout_seconds <= 3 * self.heartbeat_seconds:
            raise ConfigInvalid(
                f"min_timeout_seconds is {self.min_timeout_seconds}, "
                f"must exceed three heartbeats of {self.heartbeat_seconds} s"
            )
        if self.max_timeout_seconds <= self.min_timeout_seconds:
            raise ConfigInvalid(
                f"max_timeout_seconds is {self.max_timeout_seconds}, "
                f"must exceed min_timeout_seconds ({self.min_timeout_seconds})"
            )
        if self.connection_seconds < self.max_timeout_seconds:
            raise ConfigInvalid(
                f"connection_seconds is {self.connection_seconds}, "
                f"must be at least max_timeout_seconds ({self.max_timeout_seconds})"
            )
        if not 1 <= self.entry_bytes_max <= peers_limits.ENTRY_BYTES_MAX:
            raise ConfigInvalid(
                f"entry_bytes_max is {self.entry_bytes_max}, "
                f"must be 1 to {peers_limits.ENTRY_BYTES_MAX}"
            )
        if not 1 <= self.batch_bytes <= limits.BATCH_BYTES:
            raise ConfigInvalid(
                f"batch_bytes is {self.batch_bytes}, must be 1 to {limits.BATCH_BYTES}"
            )
        if self.snapshot_bytes < 1 or self.slice_steps < 1:
            raise ConfigInvalid(
                f"snapshot_bytes is {self.snapshot_bytes} and slice_steps is {self.slice_steps}, "
                "both must be 1 or more"
            )
        if not 1 <= self.snapshot_chunk_bytes <= limits.SNAPSHOT_CHUNK_BYTES:
            raise ConfigInvalid(
                f"snapshot_chunk_bytes is {self.snapshot_chunk_bytes}, "
                f"must be 1 to {limits.SNAPSHOT_CHUNK_BYTES}"
            )
        hosts = [self.bind[0], *(host for host, _ in self.peers.values())]
        proven = self.secret or self.tls is not None
        if self.peers and not proven and not all(map(is_loopback, hosts)):
            raise ConfigInvalid("secret or tls must be set, because not every address is loopback")


def is_loopback(host: str) -> bool:
    """Whether `host` can only mean this machine. A name other than localhost is taken as remote."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


boot_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds on a clock that never steps and counts suspended time, where the system has one.

A suspended machine must lose its lease (raft.md 3.8), and CLOCK_MONOTONIC stands still then.
"""


@dataclass(frozen=True, slots=True)
class SnapshotSent:
    """Progress of sending a snapshot: its state in bytes, and the entries kept with it."""

    index: int
    sent_bytes: int
    state_bytes: int
    sent_entries: int
    entries: int


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """The leader's knowledge of a peer; other roles know `connected` only."""

    name: str
    connected: bool
    match_index: int
    lag_entries: int
    in_flight_bytes: int
    probing: bool
    snapshot: SnapshotSent | None = None
    """The snapshot that is on its way to it."""

    counted: bool = True
    """False while it recovers from the loss of its journal."""

    room: Room | None = None
    """Its newest report of what it has left, while that counts."""

    equal_index: int = 0
    """Up to where its state was compared and is that of a majority."""

    differs_index: int = 0
    """The first compared index at which it is not; 0: none."""

    whole_index: int = 0
    """The newest index at which its whole state was compared, and is that of a majority."""

    learner: bool = False
    """Whether it gets entries, and neither votes nor counts."""


@dataclass(frozen=True, slots=True)
class LearnerStatus:
    """The leader's knowledge of a learner; other roles know `connected` only. `level`: it has what
    the leader has."""

    name: str
    connected: bool
    match_index: int
    last_index: int
    level: bool


@dataclass(frozen=True, slots=True)
class ChangeProgress:
    """A change of the members that is under way: the names of the voters in which it ends, what it
    waits for, for people, and the learners that are still to be promoted."""

    wanted: tuple[str, ...]
    waits_for: str
    learners: tuple[LearnerStatus, ...]


@dataclass(slots=True)
class RaftCounters:
    """Counts of events since the start of the process."""

    elections_total: int = 0
    pre_votes_asked_total: int = 0
    votes_refused_sticky_total: int = 0
    messages_refused_total: int = 0
    stale_acks_dropped_total: int = 0
    held_frames_total: int = 0
    held_frames_dropped_total: int = 0
    truncations_total: int = 0
    resets_total: int = 0
    callback_errors_total: int = 0
    applied_total: int = 0
    snapshots_taken_total: int = 0
    snapshots_failed_total: int = 0
    snapshots_sent_total: int = 0
    snapshots_installed_total: int = 0
    snapshot_at: float | None = None
    """When the newest snapshot was taken or installed, by the clock of the node; None for one that
    was there when it began."""
    snapshots_refused_total: int = 0


@dataclass(frozen=True, slots=True)
class ScrubStats:
    """Figures of the scrub of this member's disk, and of the damage that was found."""

    passes_total: int = 0
    read_bytes_total: int = 0
    found_total: int = 0
    repaired_total: int = 0
    damaged: int = 0
    """Entries that wait for their repair, and files that wait for a later snapshot."""


@dataclass(frozen=True, slots=True)
class RaftStatus:
    """A node's view of itself and its group, for operators and metrics."""

    name: str
    role: str
    term: int
    leader: str | None
    commit_index: int
    applied_index: int
    last_index: int
    durable_end: tuple[int, int] | None
    """Term and index of the last entry of the log; None while that is not durable."""
    snapshot_index: int
    uncommitted_bytes: int
    lease_seconds: float
    journal: JournalStats
    peers: tuple[PeerStatus, ...]
    recovering: str | None = None
    """The event that a member that lost its journal waits for; None: it votes and counts."""
    differs_index: int = 0
    """Since when this node's state is another one than that of a majority; 0: as far as it knows,
    it is not."""
    undecided: bool = False
    """Whether this node leads and accepts nothing, for the states differ and none is known to be
    right."""
    yield_seconds: float = 0.0
    """For how long it still lets the others stand for election first."""
    scrub: ScrubStats = field(default_factory=ScrubStats)
    counters: RaftCounters = field(default_factory=RaftCounters)
