"""The client of a fifo cluster, for asyncio. `import fifo` gives its names.

Owns connections, publishing, consuming, and the retries of each. Must not know how a node works:
only the protocol (`fifo.wire`) and the vocabulary (`fifo.words`).
"""

from fifo.client.backoff import Backoff, Exponential, Fixed, Table
from fifo.client.client import (
    BaseClient,
    Client,
    Connecting,
    connect,
)
from fifo.client.connection.environment import Environment
from fifo.client.connection.observing import observe
from fifo.client.connection.options import Options, from_url, redacted
from fifo.client.connection.sources import NOTHING, Given, from_environment, from_keywords
from fifo.client.consuming.consumer import Consumer
from fifo.client.consuming.delivery import DeadLetter, Delivery
from fifo.client.consuming.durable import DurableConsumer, DurableMessage, NotAcked, Opened
from fifo.client.consuming.message import LockedMessage, Message, StoredMessage
from fifo.client.consuming.signals import Signal
from fifo.client.consuming.verbs import SettleResult, Status
from fifo.client.errors import (
    AckRetriesExhausted,
    AuthenticationFailed,
    ClientClosed,
    ConnectionLost,
    FifoError,
    InvalidArgument,
    LimitReached,
    LockLost,
    MessageTooLarge,
    NoDeadLetterQueue,
    NotLeader,
    NotRenewable,
    Overloaded,
    PermissionDenied,
    ProducerGap,
    ProtocolError,
    PublishError,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    QueueReplaced,
    SessionEnded,
    SessionTaken,
    Terminal,
    Timeout,
    UnknownProducer,
    Unsupported,
)
from fifo.client.keywords import (
    ConnectionKeywords,
    ConnectKeywords,
    ConsumerDefaults,
    ConsumerKeywords,
    QueueChanges,
    RedriveKeywords,
)
from fifo.client.metrics import Metrics
from fifo.client.publishing.confirms import Confirm, Confirms
from fifo.client.publishing.producer import Producer
from fifo.client.spec import QueueSpec
from fifo.client.views import (
    AlarmView,
    ConsumerView,
    DelayedView,
    LockView,
    NodeStatus,
    PeerView,
    ProducerView,
    QueueView,
    RedriveCount,
    RedriveView,
    SnapshotView,
)

__all__ = [
    "connect",
    "observe",
    "redacted",
    "Client",
    "BaseClient",
    "Connecting",
    "Consumer",
    "Producer",
    "DurableConsumer",
    "DurableMessage",
    "NotAcked",
    "Opened",
    "Message",
    "LockedMessage",
    "StoredMessage",
    "DeadLetter",
    "Delivery",
    "SettleResult",
    "Status",
    "Signal",
    "Confirm",
    "Confirms",
    "Metrics",
    "Options",
    "Environment",
    "Given",
    "NOTHING",
    "from_environment",
    "from_keywords",
    "from_url",
    "ConnectionKeywords",
    "ConnectKeywords",
    "ConsumerDefaults",
    "ConsumerKeywords",
    "QueueChanges",
    "RedriveKeywords",
    "QueueSpec",
    "ConsumerView",
    "DelayedView",
    "LockView",
    "NodeStatus",
    "PeerView",
    "ProducerView",
    "QueueView",
    "RedriveCount",
    "RedriveView",
    "SnapshotView",
    "Backoff",
    "Fixed",
    "Exponential",
    "Table",
    "Terminal",
    "FifoError",
    "AckRetriesExhausted",
    "AlarmView",
    "AuthenticationFailed",
    "ClientClosed",
    "ConnectionLost",
    "InvalidArgument",
    "LimitReached",
    "LockLost",
    "MessageTooLarge",
    "NoDeadLetterQueue",
    "NotLeader",
    "NotRenewable",
    "Overloaded",
    "PermissionDenied",
    "ProducerGap",
    "ProtocolError",
    "PublishError",
    "QueueExists",
    "QueueFull",
    "QueueInUse",
    "QueueNotFound",
    "QueueReplaced",
    "SessionEnded",
    "SessionTaken",
    "Timeout",
    "UnknownProducer",
    "Unsupported",
]
