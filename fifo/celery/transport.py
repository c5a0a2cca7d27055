"""The transport that kombu finds under `fifo://` and `fifos://`.

Owns connections: one client each, on a thread of its own. Its methods have kombu's names. Must not
know what channels do.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import quote

import amqp.exceptions
from kombu.transport.base import Transport as KombuTransport
from kombu.transport.base import default_transport_capabilities

import fifo
from fifo.celery import limits
from fifo.celery.bridge import Bridge
from fifo.celery.channel import Channel
from fifo.celery.connected import Connected, TransportOptions

_PASSWORD: Final = re.compile(r"(?<=://)([^:@/]*):[^@/]*@")


class Transport(KombuTransport):  # type: ignore[misc]  # kombu has no types
    """fifo as a broker of kombu and Celery."""

    can_parse_url = True
    default_port = 7101
    driver_type = "fifo"
    driver_name = "fifo"

    connection_errors = (
        amqp.exceptions.ConnectionError,
        fifo.ConnectionLost,
        fifo.SessionEnded,
        fifo.SessionTaken,
        fifo.ClientClosed,
        fifo.Timeout,
        # Not OSError, which a missing permission and a wrong password are: no retry mends them.
        ConnectionError,
        TimeoutError,
        socket.gaierror,
    )
    channel_errors = (amqp.exceptions.ChannelError, fifo.FifoError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = (fifo.Overloaded, fifo.QueueFull)

    implements = default_transport_capabilities.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def establish_connection(self) -> Connected:
        """Connect to the leader. Raises ConnectionLost, AuthenticationFailed, InvalidArgument."""
        options = TransportOptions.checked(self.client.transport_options)
        patience_s = min(self.client.connect_timeout or limits.CONNECT_S, limits.CONNECT_S)
        keywords: Any = {"connect_timeout": patience_s, **options.connection}
        if isinstance(self.client.ssl, Mapping) and "ca_certs" in self.client.ssl:
            keywords.setdefault("ca", self.client.ssl["ca_certs"])
        return Connected(self.client, Bridge(self._url(), keywords), options)

    def _url(self) -> str:
        """The URL, also where kombu has taken it apart: it does so with all but the first one."""
        client = self.client
        if "://" in client.hostname:
            return str(client.hostname)
        user = f"{quote(client.userid)}:{quote(client.password or '')}@" if client.userid else ""
        scheme = "fifos" if client.transport_cls == "fifos" else "fifo"
        return f"{scheme}://{user}{client.hostname}:{client.port or self.default_port}"

    def create_channel(self, connection: Connected) -> Channel:
        """A new channel."""
        channel = Channel(connection)
        connection.channels.add(channel)
        return channel

    def close_channel(self, channel: Channel) -> None:
        """Close a channel."""
        channel.close()

    def drain_events(self, connection: Connected, timeout: float | None = None, **_: Any) -> None:
        """Hand over one message."""
        connection.drain_events(timeout)

    def close_connection(self, connection: Connected) -> None:
        """Close a connection."""
        connection.close()

    def verify_connection(self, connection: Connected) -> bool:
        """Whether the connection is of use."""
        return connection.connected

    def _collect(self, connection: Connected | None) -> None:
        """End a connection without waiting; in a fork it is the parent's, which keeps it."""
        if connection is not None:
            connection.bridge.end_soon()
            connection.bridge.abandon()

    def register_with_event_loop(self, connection: Connected, loop: Any) -> None:
        """Have kombu's event loop hand messages over as they come."""
        loop.add_reader(connection.bridge.fileno(), self.on_readable, connection, loop)

    def unregister_from_event_loop(self, connection: Connected, loop: Any) -> None:
        """Undo `register_with_event_loop`."""
        loop.remove_reader(connection.bridge.fileno())

    def qos_semantics_matches_spec(self, connection: Connected) -> bool:
        """A prefetch counts for each consumer, as in RabbitMQ since 3.3: not as in the spec."""
        return True

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL as it is shown."""
        return uri if include_password else _PASSWORD.sub(rf"\1:{mask}@", uri)

    def driver_version(self) -> str:
        """The version of fifo."""
        return version("fifo-quorum")
