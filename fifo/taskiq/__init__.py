"""taskiq on fifo: `broker = FifoBroker("fifo://host:port")`.

Owns the broker of taskiq and its results; extra `taskiq`. Built on the public client. Must not know
a node.
"""

from fifo.taskiq.broker import FifoBroker
from fifo.taskiq.results import FifoResultBackend

__all__ = ["FifoBroker", "FifoResultBackend"]
