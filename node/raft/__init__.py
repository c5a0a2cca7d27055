"""Replicated log for a broker that knows nothing of Raft: bytes in, outcomes out.

Owns consensus: elections, replication, commit, the lease, snapshots between members. Other rooms
use the names below; the rest is private to the package. Must not know queues or clients.
"""

from node.journal.errors import (
    JournalDamaged,
    JournalError,
    JournalFailed,
    JournalForeign,
    JournalFull,
    JournalLocked,
    JournalUnusable,
    JournalWhole,
)
from node.journal.io.jobs import Inline, Worker, WorkerThread
from node.journal.io.readers import FetchWaiter, NotCached
from node.journal.io.seats import NO_DESCRIPTOR_ERRNOS
from node.journal.io.storage import OsStorage, Storage
from node.journal.journal import Journal, JournalStats
from node.journal.limits import JournalLimits
from node.journal.passport import Keeper
from node.journal.snapshots.store import BodyHold
from node.peers.accepting import Acceptor, listening_socket
from node.peers.seldom import Seldom
from node.peers.tls import PeerTls
from node.peers.transport import TcpTransport, TransportCounters
from node.raft.admission import MustRecover
from node.raft.config import (
    ConfigInvalid,
    EntryTooLarge,
    Outcome,
    PeerStatus,
    RaftConfig,
    RaftCounters,
    RaftStatus,
    boot_clock,
)
from node.raft.configuration import (
    Change,
    ChangeRefused,
    Configuration,
    ConfigurationDamaged,
    Member,
    Place,
    decode,
    encode,
)
from node.raft.core import command_of
from node.raft.environment import RaftEnvironment, RaftWorkers
from node.raft.equality import Mark
from node.raft.errors import RaftError, RaftStopped
from node.raft.limits import MARK_ENTRIES
from node.raft.node import RaftNode
from node.raft.rejoin import RecoverRefused, check_members
from node.raft.room import Room
from node.raft.skipping import is_own_cause
from node.raft.transfer import TransferRefused

__all__ = [
    "NO_DESCRIPTOR_ERRNOS",
    "Change",
    "ChangeRefused",
    "Configuration",
    "ConfigurationDamaged",
    "Member",
    "Place",
    "decode",
    "encode",
    "Acceptor",
    "BodyHold",
    "listening_socket",
    "RaftNode",
    "RaftConfig",
    "RaftEnvironment",
    "RaftWorkers",
    "RaftStatus",
    "Room",
    "Mark",
    "MARK_ENTRIES",
    "RaftCounters",
    "PeerStatus",
    "Outcome",
    "boot_clock",
    "FetchWaiter",
    "NotCached",
    "Worker",
    "Inline",
    "WorkerThread",
    "Journal",
    "JournalLimits",
    "JournalStats",
    "Keeper",
    "MustRecover",
    "OsStorage",
    "Storage",
    "PeerTls",
    "Seldom",
    "TcpTransport",
    "TransportCounters",
    "RaftError",
    "RaftStopped",
    "TransferRefused",
    "ConfigInvalid",
    "EntryTooLarge",
    "JournalError",
    "JournalDamaged",
    "JournalFailed",
    "JournalForeign",
    "JournalFull",
    "JournalLocked",
    "JournalUnusable",
    "JournalWhole",
    "RecoverRefused",
    "check_members",
    "command_of",
    "is_own_cause",
]
