"""The rows of the table: which clients load a cluster, which figures are shown, and their aims.

Owns the list. An aim is a ratio to an earlier checkout in one run of both, or a time. Must not know
how a row is run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

BODY_BYTES: Final = 1_024
QUEUES: Final = 1_000
CONNECTIONS: Final = 1_000
FILLED: Final = 1_000_000
"""Messages that wait before a consumer begins alone: its rate is over the time that they last."""

PUBLISHED = "published per second"
ACKED = "acked per second"
END_P50 = "end to end p50, ms"
END_P99 = "end to end p99, ms"
CONFIRM_P50 = "confirm p50, ms"
CONFIRM_P99 = "confirm p99, ms"
CPU = "CPU per message, us"
"""Of all processes, those of the nodes and of the clients: what bounds each rate on two cores."""
LEADER_CPU = "of the leader, us"
FOLLOWER_CPU = "of each follower, us"
CLIENT_CPU = "of the client, us"
PAUSE = "pause of confirms, s"

HIGHER_IS_BETTER = (PUBLISHED, ACKED)


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients of one process that do the same (`driver.Load`)."""

    role: str
    clients: int = 1
    window: int = 1_000
    prefetch: int | str | None = None
    """None: the client's default."""
    rate: int = 0
    """Messages a second of a paced load, all clients together."""
    queues: int = 0
    fill: int = 0
    keyed: bool = False
    dressed: bool = False
    """Whether each message has a key, headers and a ttl."""

    def job(self) -> dict[str, Any]:
        """Settings for the driver."""
        return {name: getattr(self, name) for name in self.__slots__} | {"size": BODY_BYTES}


@dataclass(frozen=True, slots=True)
class Row:
    """A load, and the figures that are shown of it with their aims."""

    name: str
    clients: tuple[Clients, ...]
    aims: Mapping[str, str]
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the queue's `QueueSpec`."""
    kills: bool = False
    """Whether the leader is killed in the middle."""


def _pair(publishers: int, consumers: int, **more: Any) -> tuple[Clients, ...]:
    prefetch = more.pop("prefetch", None)
    return (
        Clients("publish", publishers, **more),
        Clients("consume", consumers, prefetch=prefetch),
    )


_RATES = {PUBLISHED: "", ACKED: "", CPU: ""}
_CONFIRMS = {CONFIRM_P50: "", CONFIRM_P99: ""}
_BY_PROCESS = {LEADER_CPU: "", FOLLOWER_CPU: "", CLIENT_CPU: ""}

ROWS: Final = (
    Row(
        "1 publisher, 1 consumer",
        _pair(1, 1),
        {PUBLISHED: "x 1.3", ACKED: "x 12.6", END_P50: "12", END_P99: "40", CPU: "x 0.73"},
    ),
    Row("the same, prefetch 1000", _pair(1, 1, prefetch=1_000), _RATES),
    Row("the same, prefetch 4000", _pair(1, 1, prefetch=4_000), _RATES),
    Row("the same, prefetch auto", _pair(1, 1, prefetch="auto"), _RATES),
    Row("8 publishers, 8 consumers", _pair(8, 8), _RATES | {ACKED: "x 1.25"}),
    Row("8 publishers, 1 consumer", _pair(8, 1), _RATES | {ACKED: "x 5.3"}),
    Row("1 publisher, 8 consumers", _pair(1, 8), _RATES | {ACKED: "x 1.57"}),
    Row("key, headers and ttl on each", _pair(1, 1, dressed=True), {ACKED: "x 1.67", CPU: ""}),
    Row(
        "key order, 8 consumers",
        _pair(1, 8, keyed=True),
        {ACKED: "x 2.2", CPU: ""},
        spec={"ordering": "key"},
    ),
    Row(
        "single active",
        _pair(1, 1),
        {ACKED: "x 1.69", CPU: ""},
        spec={"ordering": "single_active"},
    ),
    Row("1 publisher alone", (Clients("publish"),), {PUBLISHED: "", CPU: ""}),
    Row("1 consumer alone", (Clients("consume", fill=FILLED),), {ACKED: "x 1.5", CPU: "x 0.83"}),
    Row(
        "window 100, prefetch 1000",
        _pair(1, 1, window=100, prefetch=1_000),
        _RATES | {PUBLISHED: "x 1.73"} | _CONFIRMS,
    ),
    Row(
        "one confirm at a time",
        (Clients("publish", window=1),),
        {CONFIRM_P50: "x 0.64", CONFIRM_P99: "x 0.57", CPU: ""} | _BY_PROCESS,
    ),
    Row(
        "1,000 a second, paced",
        (Clients("paced", rate=1_000), Clients("consume")),
        {END_P50: "x 0.25", END_P99: "x 0.25", CPU: ""},
    ),
    Row(
        "10,000 publish() a second",
        (Clients("paced", rate=10_000),),
        {CPU: "x 0.45"} | _CONFIRMS,
    ),
    Row(
        "1,000 connections, 10 a second each",
        (Clients("paced", CONNECTIONS, rate=10 * CONNECTIONS),),
        {CPU: "x 0.5"} | _CONFIRMS,
    ),
    Row("1,000 queues", (Clients("spread", queues=QUEUES),), {PUBLISHED: "x 5.4", CPU: ""}),
    Row("leader killed", (Clients("survive"),), {PAUSE: "x 0.37"}, kills=True),
)
"""The one that kills is the last: nothing is started again."""
