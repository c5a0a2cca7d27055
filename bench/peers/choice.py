"""Which driver a system gets, loaded only when it is wanted.

Owns the names of the systems, and what is said where a client library is not installed.
"""

from __future__ import annotations

from bench.peers.drivers import Driver, FifoDriver


class DriverMissing(Exception):
    """A client library is not installed; the text says how to get it."""


def driver_of(system: str) -> Driver:
    """The driver of a system; raises DriverMissing."""
    try:
        if system == "rabbitmq":
            from bench.peers.rabbitmq_driver import RabbitDriver

            return RabbitDriver()
        if system.startswith("nats"):
            from bench.peers.nats_driver import NatsDriver

            return NatsDriver()
    except ImportError as error:
        raise DriverMissing(f"{error.name}: pip install 'fifo-quorum[peers]'") from None
    return FifoDriver()
