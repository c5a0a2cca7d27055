"""A connection, as kombu keeps it and channels use it.

Owns the client of the connection, its options, and what its channels share: exchanges, and the
marks that are held. Must not know channels.
"""

from __future__ import annotations

import errno
import time
import weakref
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import fifo
from fifo.celery.bridge import Bridge
from fifo.celery.exchanges import Exchanges
from fifo.celery.numbers import whole
from fifo.client import from_keywords
from fifo.client.adapting import GroupNames, OptionGroups, mapping, option_groups

_WHERE: Final = "broker_transport_options"

_OPTIONS: Final = ("queue", "queues", "consumer", "connection")
"""Names in `broker_transport_options`: options of all queues, of single ones by their names,
of consumers, and of the connection, by the names of fifo's client."""

_GROUPS: Final = GroupNames(*[f"{_WHERE}: {name}" for name in _OPTIONS[:3]])

_CHOSEN: Final = {"prefetch": "Celery chooses it, by worker_prefetch_multiplier"}

_OF_KOMBU: Final = frozenset(
    {"max_retries", "interval_start", "interval_step", "interval_max", "errback", "timeout"}
)
"""Options of kombu's own retries, which it keeps in the same place."""


class Closable(Protocol):
    """A channel, as far as its connection is concerned."""

    def close(self) -> None:
        """Close it."""


class TransportOptions(NamedTuple):
    """The checked `broker_transport_options`."""

    groups: OptionGroups
    connection: Mapping[str, Any]

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> TransportOptions:
        """From what an app gives. Raises InvalidArgument with the place and the value."""
        given = mapping(given, _WHERE)
        strange = sorted(set(given) - set(_OPTIONS) - _OF_KOMBU)
        if strange:
            known = ", ".join(_OPTIONS)
            raise fifo.InvalidArgument(f"{_WHERE}: {strange[0]!r} is not known; use {known}")
        queue, queues, consumer, connection = map(given.get, _OPTIONS)
        groups = option_groups(queue, queues, consumer, names=_GROUPS, chosen=_CHOSEN)
        place = f"{_WHERE}: connection"
        keywords = mapping(connection, place)
        try:
            from_keywords(keywords)
        except fifo.InvalidArgument as error:
            raise fifo.InvalidArgument(f"{place}: {error}") from None
        return cls(groups, keywords)

    def of_queue(self, name: str) -> dict[str, Any]:
        """The options with which a queue is declared."""
        return self.groups.of_queue(name)

    def of_consumer(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a consumer; a lock is kept for as long as its process lives.

        Raises InvalidArgument for an `x-priority` that is no number.
        """
        options = dict(self.groups.of_consumers)
        if "x-priority" in arguments:
            options["priority"] = whole(arguments["x-priority"], "x-priority")
        return options


class Connected:
    """A connection: what kombu keeps, passes to channels, and drains."""

    def __init__(self, client: Any, bridge: Bridge, options: TransportOptions) -> None:
        self.client = client
        self.bridge = bridge
        self.options = options
        self.channels: set[Closable] = set()
        self.transient: set[str] = set()
        self._holds: dict[str, fifo.Consumer[fifo.Message]] = {}
        self.exchanges = Exchanges(self._names, time.monotonic)
        # kombu's pools drop connections that they have not closed.
        weakref.finalize(self, bridge.end_soon)

    @property
    def connected(self) -> bool:
        """Whether it is of use: a lost leader does not end it."""
        return self.bridge.alive

    def drain_events(self, timeout: float | None = None) -> None:
        """Hand over what has come. Raises TimeoutError where nothing came in `timeout` seconds."""
        arrival = self.bridge.next_arrival(timeout)
        if arrival is None:
            raise TimeoutError(errno.EAGAIN, "no message came")
        while arrival is not None:
            arrival()
            arrival = self.bridge.next_arrival(0)

    def hold(self, mark: str) -> None:
        """Keep the mark of a queue that goes with this process: both expire unused."""
        if mark not in self._holds:
            self.bridge.call(self._hold(mark))

    async def _hold(self, mark: str) -> None:
        self._holds[mark] = consumer = self.bridge.client.consume(mark, prefetch=1)
        await consumer.subscribe()

    async def let_go(self, mark: str) -> None:
        """Undo `hold`; on the bridge's thread."""
        consumer = self._holds.pop(mark, None)
        if consumer is not None:
            await consumer.cancel()

    def close(self) -> None:
        """Close the channels, send what is to be sent, and end."""
        for channel in list(self.channels):
            channel.close()
        self.bridge.close()

    def _names(self, prefix: str) -> list[str]:
        found = self.bridge.call(self.bridge.client.queues(prefix))
        return [queue.name for queue in found]
