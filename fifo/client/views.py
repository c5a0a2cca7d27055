"""Views of queues, locks, consumers, producers and nodes.

Owns one frozen class per kind of view. Durations are seconds. A view is a moment's picture: it
never changes. A key that a node does not send has the default; `as_dict()` gives the map as it was
sent (durations in milliseconds), with keys of newer nodes that have no attribute here. Must not
know connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from fifo.client.errors import ProtocolError

_V = TypeVar("_V", bound="View")


def _sent(key: str, default: Any = None, read: Callable[[Any], Any] | None = None) -> Any:
    """Declare an attribute that is sent under `key`; `read` makes it of the value, unless nil."""
    return field(default=default, metadata={"key": key, "read": read})


def _seconds(key: str) -> Any:
    """Declare a duration, sent in milliseconds."""
    return _sent(key, 0.0, lambda value: value / 1000)


def _map(key: str, read: Callable[[Any], Any] = dict) -> Any:
    """Declare a map; an empty one where it is not sent."""
    return field(default_factory=dict, metadata={"key": key, "read": read})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The base of all views."""

    _sent: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the map as the node sent it: durations in milliseconds, nested maps as maps."""
        return dict(self._sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveView(View):
    """A redrive of dead letters: its progress, or how the last one ended."""

    status: str = _sent("status", "")
    """`running`, `paused`, `done` or `cancelled`."""
    reason: str | None = _sent("reason")
    """Why it is paused."""
    moved: int = _sent("moved", 0)
    """Messages moved so far."""
    skipped: int = _sent("skipped", 0)
    """Messages chosen but left: without `target`, those whose source queue is not known or gone."""
    target: str | None = _sent("target")
    """The queue they are moved to; None: each to where it came from."""
    filter: Mapping[str, Any] = _map("filter")
    """The conditions: `reason`, `source`, `headers`, `older_than_ms`, `min_attempts`."""
    limit: int | None = _sent("limit")
    """Maximum number of messages to move."""
    rate_per_s: int | None = _sent("rate_per_s")
    """Maximum number of messages moved per second."""
    reset_counts: bool = _sent("reset_counts", default=True)
    """Whether attempts and failures start anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveCount(View):
    """The outcome of a dry run: the messages that a redrive would move now."""

    messages: int = _sent("messages", 0)
    """Number of messages that match."""
    sources: Mapping[str, int] = _map("sources")
    """Number of them by the queue that they came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup(View):
    """Dead letters that are alike."""

    reason: str = _sent("reason", "")
    """Why: as in `message.dead_letter`; `others` gathers what does not fit into the list."""
    source: str = _sent("source", "")
    """The queue that they came from."""
    exception_type: str = _sent("exception_type", "")
    """The type of the exception; empty without one."""
    stack_line: str = _sent("stack_line", "")
    """The line of the stack that names the place; empty without a stack."""
    messages: int = _sent("messages", 0)
    """Number of them."""
    first_died_ms: int = _sent("first_died_ms", 0)
    """When the first of them died, in milliseconds since 1970."""
    last_died_ms: int = _sent("last_died_ms", 0)
    """When the last of them died."""
    id: str = _sent("id", "")
    """The id of the first one in the queue."""


def _redrive(sent: object) -> RedriveView:
    return view(RedriveView, sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmView(View):
    """A resource of a node past its threshold: publishes are refused while the node leads."""

    alarm: str = _sent("alarm", "")
    """`disk_low`: too little is free; `memory_high`: too much is held for clients."""
    node: str = _sent("node", "")
    """The member whose resource it is: a leader refuses publishes for every member's."""
    bytes: int = _sent("bytes", 0)
    """The free or held bytes, as measured last."""
    threshold_bytes: int = _sent("threshold_bytes", 0)
    """The bytes that must be free, or may be held: `[limits]` of cluster.toml."""
    active_s: float = _seconds("active_ms")
    """Seconds since the node that answers has seen it so."""
    refuses: bool = _sent("refuses", default=True)
    """Whether publishes are refused for it."""


def _alarms(sent: object) -> tuple[AlarmView, ...]:
    return views(AlarmView, sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView(View):
    """A queue: its depth, its state and, from `queue(name)`, its counters and redrive."""

    name: str = _sent("name", "")
    """The name."""
    number: int = _sent("number", 0)
    """The number of the queue in the cluster: the first part of its messages' ids."""
    ready: int = _sent("ready", 0)
    """Messages that can be delivered."""
    locked: int = _sent("locked", 0)
    """Messages that a consumer holds."""
    delayed: int = _sent("delayed", 0)
    """Messages that wait for their time: published with a delay, or returned with a backoff."""
    messages: int = _sent("messages", 0)
    """All messages: ready, locked and delayed."""
    bytes: int = _sent("bytes", 0)
    """Bytes that count towards `max_bytes`."""
    paused: bool = _sent("paused", default=False)
    """Whether deliveries are stopped."""
    consumers: int = _sent("consumers", 0)
    """Consumers, waiting and durable ones included."""
    active: int | None = _sent("active")
    """The number of the active consumer, with `ordering` single_active."""
    alarms: tuple[AlarmView, ...] = _sent("alarms", (), _alarms)
    """Alarms of the leader: while there is one, it refuses publishes to every queue."""
    spec: Mapping[str, Any] = _map("spec")
    """Every option by its key on the wire (docs/protocol.md 8), defaults included."""
    counters: Mapping[str, int] = _map("counters")
    """Events since the declaration, by name: `published`, `acked`, `lock_timeouts`, ..."""
    version: str | None = _sent("version")
    """From `queue(name)`: the version of its options, which `update` takes."""
    redrive: RedriveView | None = _sent("redrive", None, _redrive)  # noqa: RUF009 - a field
    """The redrive of this dead-letter queue; None where there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView(View):
    """A locked message and its holder."""

    token: int = _sent("token", 0)
    """With `consumer`, what `client.settle` takes."""
    consumer: int = _sent("consumer", 0)
    """The number of the consumer that holds it."""
    tag: str = _sent("tag", "")
    """The tag of that consumer."""
    label: str = _sent("label", "")
    """The label of that consumer: `label=` of `consume`."""
    session: str = _sent("session", "")
    """The beginning of the session's id, in hexadecimal; empty for a durable consumer."""
    user: str = _sent("user", "")
    """The user of that session."""
    client: str = _sent("client", "")
    """The name that the client gave itself: `name=` of `connect`."""
    address: str = _sent("address", "")
    """Where that session connected from."""
    id: str = _sent("id", "")
    """The id of the message."""
    attempt: int = _sent("attempt", 1)
    """Deliveries of the message so far, this one included."""
    failures: int = _sent("failures", 0)
    """Failed deliveries so far."""
    held_s: float = _seconds("checkout_ms_ago")
    """Seconds since the delivery."""
    remaining_s: float = _seconds("remaining_ms")
    """Seconds until the lock ends, renewals included."""
    renewals: int = _sent("renewals", 0)
    """Renewals so far: those that the current leader has granted, or has made on its own."""
    renewals_max: int | None = _sent("renewals_max")
    """Renewals that the leader makes on its own; None where the client has to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceView(View):
    """Where a message stands, and who holds it or for how long it waits."""

    place: str = _sent("place", "")
    """`ready`, `locked` or `delayed`."""
    version: str = _sent("version", "")
    """Changes when the message moves on: what `client.act(version=...)` takes."""
    attempts: int = _sent("attempts", 0)
    """Deliveries so far."""
    cause: str | None = _sent("cause")
    """Why it is delayed: as in `DelayedView`."""
    due_in_s: float = _seconds("due_in_ms")
    """Seconds until it is ready, while it is delayed."""
    consumer: int = _sent("consumer", 0)
    """The number of the consumer that holds it."""
    token: int = _sent("token", 0)
    """Its token there."""
    tag: str = _sent("tag", "")
    """The tag of that consumer."""
    label: str = _sent("label", "")
    """Its label."""
    session: str = _sent("session", "")
    """The beginning of its session's id, in hexadecimal."""
    user: str = _sent("user", "")
    """The user of that session."""
    client: str = _sent("client", "")
    """The name that the client gave itself."""
    address: str = _sent("address", "")
    """Where it connected from."""
    held_s: float = _seconds("checkout_ms_ago")
    """Seconds since the delivery."""
    remaining_s: float = _seconds("remaining_ms")
    """Seconds until the lock ends, renewals included."""
    renewals: int = _sent("renewals", 0)
    """Renewals so far that the current leader has granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedView(View):
    """A delayed message."""

    id: str = _sent("id", "")
    """The id of the message."""
    cause: str = _sent("cause", "")
    """Why it waits: `published` (with a delay), `nack`, `timeout`, `disconnect`, `released`,
    `taken_back` or `postponed` (by an operator)."""
    due_in_s: float = _seconds("due_in_ms")
    """Seconds until it is ready."""
    attempt: int = _sent("attempt", 0)
    """Deliveries so far."""
    failures: int = _sent("failures", 0)
    """Failed deliveries so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerView(View):
    """A consumer of a queue."""

    consumer: int = _sent("consumer", 0)
    """The number of the consumer."""
    tag: str = _sent("tag", "")
    """The tag it subscribed with, or the name of a durable consumer."""
    label: str = _sent("label", "")
    """The label that its program chose: `label=` of `consume`."""
    session: str = _sent("session", "")
    """The beginning of its session's id, in hexadecimal; empty for a durable consumer."""
    user: str = _sent("user", "")
    """The user of the session."""
    client: str = _sent("client", "")
    """The name that the client gave itself: `name=` of `connect`."""
    address: str = _sent("address", "")
    """Where the session connected from."""
    status: str = _sent("status", "")
    """`active`, `waiting` or `cancelled`."""
    flags: tuple[str, ...] = _sent("flags", (), tuple)
    """Any of `disconnected`, `detached`, `suspected`."""
    suspected_why: str | None = _sent("suspected_why")
    """Why it is suspected: `timeout` or `timeout_while_disconnected`; `all_places_lost` where lost
    messages whose handlers still run take all places of its prefetch."""
    lost_running: int = _sent("lost_running", 0)
    """Lost messages whose handlers still run, each of which takes a place of its prefetch."""
    implicit: bool = _sent("implicit", default=False)
    """Whether it is the consumer behind a session's `get`."""
    durable: bool = _sent("durable", default=False)
    """Whether it outlives every session."""
    priority: int = _sent("priority", 0)
    """Higher ones are served first."""
    prefetch: int = _sent("prefetch", 0)
    """Maximum number of messages it holds."""
    credit: int | None = _sent("credit")
    """Messages it has asked for and not received; None where it does not pull."""
    held: int = _sent("held", 0)
    """Messages it holds."""
    lock_s: float = _seconds("lock_ms")
    """Seconds that its locks last."""
    renewable: bool = _sent("renewable", default=True)
    """Whether its locks may be renewed."""
    renewals: int = _sent("renewals", 0)
    """Locks' time for which the leader renews a lock on its own."""
    next_token: int = _sent("next_token", 0)
    """The token of its next message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerView(View):
    """A named producer that has published to a queue."""

    name: str = _sent("name", "")
    """The name."""
    producer: int = _sent("producer", 0)
    """Its number in the cluster: the second part of its messages' ids."""
    last: int = _sent("last", 0)
    """The number last stored in the queue."""
    queues: int = _sent("queues", 0)
    """Queues that it has published to."""
    unused_s: float = _seconds("unused_ms")
    """Seconds since it last published, or was opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView(View):
    """A session: a client, over all its connections."""

    session: str = _sent("session", "")
    """The beginning of its id."""
    number: int = _sent("number", 0)
    """Its number in the cluster."""
    user: str = _sent("user", "")
    """The user that it belongs to."""
    client: str = _sent("client", "")
    """The name that the client gave itself."""
    address: str = _sent("address", "")
    """Where it connected from last."""
    status: str = _sent("status", "")
    """`connected`, `detached` or `disconnected`."""
    use: str = _sent("use", "")
    """`none`, `writing` or `consuming`: how long it outlives its connections."""
    consumers: int = _sent("consumers", 0)
    """Its consumers."""
    held: int = _sent("held", 0)
    """Messages that these hold."""
    ends_in_ms: int | None = _sent("ends_in_ms")
    """Milliseconds until it ends; None while it is connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView(View):
    """A line of the audit log: a change, who made it, from where, and its outcome."""

    id: str = _sent("id", "")
    """The entry of the cluster's log that made it, and its place there."""
    time: str = _sent("time", "")
    """When, in UTC, as ISO 8601 writes it."""
    user: str | None = _sent("user")
    """The user who asked; None in a cluster without users."""
    address: str = _sent("address", "")
    """Where the request came from."""
    client: str = _sent("client", "")
    """The name that the client gave itself; of the HTTP API with the caller's address."""
    verb: str = _sent("verb", "")
    """The request: `declare`, `update`, `purge`, ..."""
    queue: str | None = _sent("queue")
    """The queue that it names."""
    what: Mapping[str, Any] = _map("what")
    """The other details of the request."""
    before: Mapping[str, Any] | None = _sent("before")
    """Of the queue what differs after the entry, as it was; None where there was none."""
    after: Mapping[str, Any] | None = _sent("after")
    """The same after it."""
    outcome: str = _sent("outcome", "")
    """`done`, `begun` (a transfer of leadership) or `refused`."""
    reason: str | None = _sent("reason")
    """Why it was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserView(View):
    """A user with its part of each quota, by the names of the configuration."""

    name: str = _sent("name", "")
    """The name."""
    connections: int = _sent("connections", 0)
    """Connections to the leader."""
    sessions: int = _sent("sessions", 0)
    """Sessions, connected or not."""
    producers: int = _sent("producers", 0)
    """Named producers."""
    queues: int = _sent("queues", 0)
    """Queues that it created."""
    consumers: int = _sent("consumers", 0)
    """Consumers, those of gets and durable ones too."""
    stored_bytes: int = _sent("stored_bytes", 0)
    """Bytes in its queues."""
    shares: Mapping[str, int] = _map("shares")
    """Its share of each, by the name of the quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerView(View):
    """Another node, as the asked one sees it."""

    name: str = _sent("name", "")
    """The name of the node."""
    match: int = _sent("match", 0)
    """The last log index known to be on its disk."""
    lag: int = _sent("lag", 0)
    """Log entries that it is behind."""
    connected: bool = _sent("connected", default=False)
    """Whether there is a connection to it."""
    learner: bool = _sent("learner", default=False)
    """Whether it gets the log and neither votes nor counts yet."""
    counted: bool = _sent("counted", default=False)
    """Whether its disk counts towards a majority."""
    equal_index: int = _sent("equal_index", 0)
    """The last log index at which its state was compared and is that of a majority."""
    differs_index: int = _sent("differs_index", 0)
    """The first compared log index at which it is not; 0: none."""
    whole_index: int = _sent("whole_index", 0)
    """The newest log index at which its whole state was compared and is that of a majority."""
    in_flight_bytes: int = _sent("in_flight_bytes", 0)
    """Bytes sent to it and not answered."""
    snapshot: Mapping[str, Any] | None = _sent("snapshot", None, dict)
    """The progress of a snapshot on its way to it."""
    room: Mapping[str, Any] | None = _sent("room", None, dict)
    """Its last report of what it has left, as the leader counts it: `free_bytes` on its disk, which
    is low below `low_bytes`, `held_bytes` of memory, high above `high_bytes`, and `sync_ms`, the
    recent time of its syncs. None where no report counts: older than 10 s, or it recovers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotView(View):
    """The newest snapshot of a node."""

    index: int = _sent("index", 0)
    """The last log index in it; 0 for none."""
    state_bytes: int = _sent("state_bytes", 0)
    """Bytes of the state without bodies."""
    disk_bytes: int = _sent("disk_bytes", 0)
    """Bytes of all snapshot files."""
    kept_bytes: int = _sent("kept_bytes", 0)
    """Bytes of bodies that snapshots keep in older files."""
    taken: int = _sent("taken", 0)
    """Snapshots taken since the start of the node."""
    sent: int = _sent("sent", 0)
    """Snapshots sent to other nodes since the start."""
    installed: int = _sent("installed", 0)
    """Snapshots installed since the start."""


_NO_SNAPSHOT: Final = SnapshotView()


def _snapshot(sent: object) -> SnapshotView:
    return view(SnapshotView, sent)


def _peers(sent: object) -> tuple[PeerView, ...]:
    return views(PeerView, sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus(View):
    """A node: its role, its log and its peers."""

    node: str = _sent("node", "")
    """The name of the node."""
    role: str = _sent("role", "")
    """`leader`, `follower` or `candidate`."""
    recovering: bool = _sent("recovering", default=False)
    """Whether it rebuilds its data from the other nodes."""
    differs_index: int = _sent("differs_index", 0)
    """Since which log index its state is not that of a majority; 0: as far as it knows, it is."""
    undecided: bool = _sent("undecided", default=False)
    """Whether it leads and accepts nothing, for no two states are known to be equal and right."""
    cluster: str = _sent("cluster", "")
    """The id of its cluster, in hexadecimal digits."""
    term: int = _sent("term", 0)
    """The Raft term."""
    leader: str | None = _sent("leader")
    """The name of the leader, where it is known."""
    members: Mapping[str, str] = _map("members")
    """The client address of every node, by its name."""
    commit: int = _sent("commit", 0)
    """The commit index."""
    applied: int = _sent("applied", 0)
    """The last applied index."""
    last: int = _sent("last", 0)
    """The last index of the log."""
    durable_end: tuple[int, int] | None = _sent("durable_end", None, tuple)
    """Term and index of its last entry; None while that is not on its disk."""
    peers: tuple[PeerView, ...] = _sent("peers", (), _peers)
    """The other nodes."""
    journal_bytes: int = _sent("journal_bytes", 0)
    """Bytes of the log on the disk."""
    disk_free_bytes: int = _sent("disk_free_bytes", 0)
    """Bytes free on that disk."""
    disk_low_bytes: int = _sent("disk_low_bytes", 0)
    """The threshold of the alarm `disk_low`."""
    memory_held_bytes: int = _sent("memory_held_bytes", 0)
    """Bytes held for clients that have not read them, or sent half a frame."""
    memory_high_bytes: int = _sent("memory_high_bytes", 0)
    """The threshold of the alarm `memory_high`."""
    alarms: tuple[AlarmView, ...] = _sent("alarms", (), _alarms)
    """The alarms of this node."""
    snapshot: SnapshotView = _sent("snapshot", _NO_SNAPSHOT, _snapshot)  # noqa: RUF009 - a field
    """The newest snapshot."""
    fsync_s: Mapping[str, float] = _map("fsync_ms", lambda sent: {k: sent[k] / 1000 for k in sent})
    """Seconds that an fsync takes, by quantile: `p50` and `p99`."""
    uptime_s: float = _sent("uptime_s", 0.0)
    """Seconds since the start of the node."""
    sessions: int = _sent("sessions", 0)
    """Client sessions."""
    queues: int = _sent("queues", 0)
    """Queues."""
    version: str = _sent("version", "")
    """The version of the node's program."""
    machine_version: int = _sent("machine_version", 0)
    """The highest version of the queue machine that it knows."""
    versions: Mapping[str, Any] = _map("versions")
    """The version of the cluster: `used`, what this node `can`, its `members`, and `finish`: what
    the end of an upgrade would turn on, and what is in the way."""
    membership: Mapping[str, Any] = _map("membership")
    """The members by the newest configuration that this node knows: `number`, `committed`,
    `members` (each with `name`, `peer`, `client`, `http`, `learner`), `wanted` and `waits_for` of a
    change under way, `learners` with what each lacks, `waiting` (nodes that could be added)."""
    wall_ms: int = _sent("wall_ms", 0)
    """Its wall clock, in milliseconds since 1970."""
    connections: int = _sent("connections", 0)
    """Connections to its client port."""
    connections_max: int = _sent("connections_max", 0)
    """Connections that it takes."""
    descriptors_max: int = _sent("descriptors_max", 0)
    """Descriptors that its process may open; below 0 for any number."""
    certificates: Mapping[str, int] = _map("certificates")
    """The ends of its certificates by port, in milliseconds since 1970."""
    clients: int = _sent("clients", 0)
    """Connections of clients to this node, without those that only ask for its status."""
    elections: int = _sent("elections", 0)
    """Elections that it began since its start."""
    uncommitted_bytes: int = _sent("uncommitted_bytes", 0)
    """Bytes of entries under way: submitted to this node and not committed."""
    yields_ms: int = _sent("yields_ms", 0)
    """Milliseconds for which it lets the others stand first, after it handed over."""
    jwt_problem: str | None = _sent("jwt_problem")
    """Why it has no keys, or old ones, of the provider of its tokens; None where it has."""
    roles: tuple[Mapping[str, Any], ...] = _sent("roles", (), tuple)
    """The last changes of its role, the oldest first: `at_ms` (since 1970), `role`, `term` and
    `cause`."""


def view(kind: type[_V], sent: object) -> _V:
    """Make a view of what a node sent. Raises ProtocolError where that is not a map."""
    if not isinstance(sent, Mapping):
        raise ProtocolError(f"expected a map for a {kind.__name__}, got {type(sent).__name__}")
    found: dict[str, Any] = {}
    for one in fields(kind):
        key, read = one.metadata.get("key"), one.metadata.get("read")
        value = sent.get(key)
        if value is not None:
            found[one.name] = value if read is None else read(value)
    return kind(_sent=sent, **found)


def views(kind: type[_V], sent: object) -> tuple[_V, ...]:
    """Make a view of each map in a list; nil is an empty list."""
    if not isinstance(sent, list | tuple | None):
        raise ProtocolError(f"expected a list of {kind.__name__}, got {type(sent).__name__}")
    return tuple([view(kind, one) for one in sent or ()])
