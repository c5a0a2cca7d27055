"""Quotas: the shares of users in the pools of a node and its cluster.

Owns which part of a pool a user may take, and the reserve that is left to operators. Held before a
command is proposed, never while one is applied: a changed share takes nothing away. Renewals,
settlements and heartbeats are never refused. Must not know connections, or where rights come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from fifo.machine.contract import Machine
from fifo.machine.contract import limits as machine_limits
from fifo.wire import Code
from fifo.wire import messages as wire
from fifo.wire.membership import ChangeMembers
from fifo.wire.messages import Message
from fifo.wire.upgrading import FinishUpgrade
from node.broker import limits
from node.broker.counters import Counters
from node.broker.permissions import Rights
from node.config import LimitSettings
from node.users import Quota

KINDS: Final = {
    Quota.SESSIONS: "session",
    Quota.PRODUCERS: "producer",
    Quota.QUEUES: "queue",
    Quota.CONSUMERS: "consumer",
}
"""Quotas of what is replicated, by the machine's word for one item."""

RESERVED: Final = frozenset({Quota.CONNECTIONS, Quota.SESSIONS, Quota.PRODUCERS})
"""Pools of which a part is left to operators: without these they could not look, nor end any."""

FREE: Final[frozenset[type[Message]]] = frozenset(
    {
        wire.Settle,
        wire.Renew,
        wire.Credit,
        wire.Cancel,
        wire.Alive,
        wire.NoticeAck,
        wire.Close,
        wire.TransferLeadership,
        FinishUpgrade,
        ChangeMembers,
    }
)
"""Requests that no rate refuses: they make room, or keep what a client has."""

FREE_VERBS: Final = frozenset({"ack", "renew", "forget"})
"""The same of durable consumers."""


class Refusal(NamedTuple):
    """The refusal of a request beyond a quota: the answer to the client, and the quota."""

    code: str
    text: str
    quota: Quota

    @property
    def detail(self) -> dict[str, str]:
        """The quota's name, for programs."""
        return {"quota": self.quota.value}


def reserve_of(quota: Quota, pool: int) -> int:
    """The part of a pool that only operators may use; a small pool is not all theirs."""
    if quota not in RESERVED:
        return 0
    part = max(limits.RESERVE_MIN, pool // limits.RESERVE_PARTS)
    return min(part, pool // limits.SHARE_PARTS)


def open_to(rights: Rights | None, quota: Quota, pool: int) -> int:
    """The size of a pool for this user. Without users every client is an operator."""
    if rights is None or rights.user.operate:
        return pool
    return pool - reserve_of(quota, pool)


def share_of(rights: Rights | None, quota: Quota, pool: int) -> int:
    """Return the share of one user in a pool: as configured, else half."""
    if rights is None:
        return pool
    configured = rights.share(quota)
    return max(pool // limits.SHARE_PARTS, 1) if configured is None else configured


def refusal(
    rights: Rights | None, quota: Quota, pool: int, *, used: int, own: int, adds: int = 1
) -> Refusal | None:
    """Why this user may not have more; `used` of the pool by all, `own` by the user."""
    open_pool, share = open_to(rights, quota, pool), share_of(rights, quota, pool)
    code = Code.OVERLOADED if quota in (Quota.CONNECTIONS, Quota.STORED_BYTES) else Code.LIMIT
    name = quota.value.replace("_", " ")
    if rights is not None and own + adds > share:
        text = (
            f"user {rights.user.name} has {own} {name}, at most {share}: free some, or set"
            f" {quota} in its [[user]] section"
        )
        return Refusal(code, text, quota)
    if used + adds > open_pool:
        what = "node" if quota is Quota.CONNECTIONS else "cluster"
        return Refusal(code, f"this {what} has its maximum of {open_pool} {name}", quota)
    return None


@dataclass(slots=True)
class _Bucket:
    """Requests or bytes left to a user; they fill up to one second's worth."""

    at: float
    left: float


class Quotas:
    """The quotas of one term, on the leader."""

    def __init__(
        self,
        machine: Machine,
        settings: LimitSettings,
        counters: Counters,
        now: Callable[[], float],
        rights_of: Callable[[str], Rights | None],
        free_bytes: Callable[[], int],
    ) -> None:
        """`now` in seconds; `rights_of` a user, None for one that is not configured; `free_bytes`
        of the disk above the mark at which publishes are refused."""
        self._machine = machine
        self._counters = counters
        self._now = now
        self._rights_of = rights_of
        self._free_bytes = free_bytes
        self._pools = {
            Quota.SESSIONS: settings.sessions,
            Quota.PRODUCERS: machine_limits.NAMED_PRODUCERS,
            Quota.QUEUES: settings.queues,
            Quota.CONSUMERS: settings.consumers,
        }
        self._rates = {
            Quota.REQUESTS_PER_S: settings.requests_per_s,
            Quota.BYTES_PER_S: settings.bytes_per_s,
        }
        self._buckets: dict[tuple[str, Quota], _Bucket] = {}
        self._proposed: dict[tuple[Quota, str], int] = {}
        self._stored: dict[str, int] = {}
        self._stored_at = -limits.STORED_LOOK_SECONDS
        self._room = 0

    # --- what is replicated -----------------------------------------------------------------------

    def refusal(self, rights: Rights | None, quota: Quota, adds: int = 1) -> Refusal | None:
        """Why the user may not have this many more, or None; what is proposed counts."""
        user, kind = _name(rights), KINDS[quota]
        proposed = sum(count for (one, _), count in self._proposed.items() if one is quota)
        found = refusal(
            rights,
            quota,
            self._pools[quota],
            used=self._count(quota) + proposed,
            own=self._machine.owned(kind, user) + self._proposed.get((quota, user), 0),
            adds=adds,
        )
        return self._noted(found)

    def proposed(self, rights: Rights | None, quota: Quota, adds: int = 1) -> Callable[[], None]:
        """Count what is proposed, until the returned function is called: it is decided."""
        key = quota, _name(rights)
        self._proposed[key] = self._proposed.get(key, 0) + adds

        def decided() -> None:
            left = self._proposed.pop(key, 0) - adds
            if left:
                self._proposed[key] = left

        return decided

    def _count(self, quota: Quota) -> int:
        machine = self._machine
        match quota:
            case Quota.SESSIONS:
                return machine.session_count()
            case Quota.PRODUCERS:
                return machine.producer_count()
            case Quota.QUEUES:
                return machine.queue_count()
            case _:
                return machine.consumer_count()

    # --- bytes that are stored --------------------------------------------------------------------

    def stores(self, queue: str, size_bytes: int) -> Refusal | None:
        """Why the owner of this queue may have no more bytes stored; otherwise they count."""
        owner = self._machine.owner_of(queue)
        rights = None if owner is None else self._rights_of(owner)
        if owner is None or rights is None:
            return None
        self._look_at_stored()
        used, own = self._room, self._stored.get(owner, 0)
        found = refusal(rights, Quota.STORED_BYTES, used, used=0, own=own, adds=size_bytes)
        if found is None:
            self._stored[owner] = own + size_bytes
        return self._noted(found)

    def _look_at_stored(self) -> None:
        now = self._now()
        if now - self._stored_at >= limits.STORED_LOOK_SECONDS:
            self._stored_at = now
            self._stored = self._machine.stored_bytes()
            self._room = sum(self._stored.values()) + max(self._free_bytes(), 0)

    # --- rates ------------------------------------------------------------------------------------

    def takes(self, rights: Rights, message: Message, size_bytes: int) -> Refusal | None:
        """Why this request of the user comes too soon, or None; then it counts."""
        if type(message) in FREE or getattr(message, "verb", None) in FREE_VERBS:
            return None
        now = self._now()
        requests = len(message.queues) if isinstance(message, wire.PublishAcross) else 1
        buckets = [
            (self._bucket(rights, Quota.REQUESTS_PER_S, now), requests, Quota.REQUESTS_PER_S),
            (self._bucket(rights, Quota.BYTES_PER_S, now), size_bytes, Quota.BYTES_PER_S),
        ]
        for bucket, _, quota in buckets:
            if bucket.left <= 0:
                share = share_of(rights, quota, self._rates[quota])
                text = (
                    f"user {rights.user.name} asks for more than {share} {quota}: ask less often,"
                    f" or set {quota} in its [[user]] section"
                )
                return self._noted(Refusal(Code.OVERLOADED, text, quota))
        for bucket, cost, _ in buckets:
            bucket.left -= cost
        return None

    def _bucket(self, rights: Rights, quota: Quota, now: float) -> _Bucket:
        share = share_of(rights, quota, self._rates[quota])
        key = rights.user.name, quota
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(now, share)
        bucket.left = min(share, bucket.left + (now - bucket.at) * share)
        bucket.at = now
        return bucket

    # --- what is shown ----------------------------------------------------------------------------

    def usage(self, rights: Rights) -> dict[str, int]:
        """Return the items of a user in each pool that the leader knows."""
        self._look_at_stored()
        user = rights.user.name
        found = {quota.value: self._machine.owned(kind, user) for quota, kind in KINDS.items()}
        return {**found, Quota.STORED_BYTES.value: self._stored.get(user, 0)}

    def shares(self, rights: Rights) -> dict[str, int]:
        """Return the share of the user in each."""
        self._look_at_stored()
        pools = {**self._pools, Quota.STORED_BYTES: self._room, **self._rates}
        return {quota.value: share_of(rights, quota, pool) for quota, pool in pools.items()}

    def _noted(self, found: Refusal | None) -> Refusal | None:
        if found is not None:
            self._counters.over_quota(found.quota)
        return found


def _name(rights: Rights | None) -> str:
    return "" if rights is None else rights.user.name
