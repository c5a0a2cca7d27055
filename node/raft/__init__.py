"""Replicated log for a broker that knows nothing of Raft: bytes in, outcomes out.

The only package that imports pysyncobj. What other rooms may use is named here; the rest is
private to the package. Nothing here knows of queues.
"""

from node.raft.accepting import Acceptor, listening_socket
from node.raft.config import (
    ConfigInvalid,
    EntryTooLarge,
    JournalLimits,
    Outcome,
    PeerStatus,
    RaftConfig,
    RaftCounters,
    RaftStatus,
    boot_clock,
)
from node.raft.errors import (
    JournalDamaged,
    JournalError,
    JournalFailed,
    JournalForeign,
    JournalFull,
    JournalLocked,
    JournalUnusable,
    JournalWhole,
    RaftError,
    RaftStopped,
)
from node.raft.fetching import Asker, NotAtHand
from node.raft.journal import Journal
from node.raft.journalstats import JournalStats
from node.raft.node import RaftNode
from node.raft.offload import Inline, Offload, WorkerThread
from node.raft.peer_tls import PeerTls
from node.raft.rejoin import RecoverRefused, check_members
from node.raft.storage import OsStorage, Storage
from node.raft.transfer import TransferRefused
from node.raft.transport import TcpTransport, TransportCounters

__all__ = [
    "Acceptor",
    "listening_socket",
    "RaftNode",
    "RaftConfig",
    "RaftStatus",
    "RaftCounters",
    "PeerStatus",
    "Outcome",
    "boot_clock",
    "Asker",
    "NotAtHand",
    "Offload",
    "Inline",
    "WorkerThread",
    "Journal",
    "JournalLimits",
    "JournalStats",
    "OsStorage",
    "Storage",
    "PeerTls",
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
]
