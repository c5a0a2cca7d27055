"""taskiq on fifo: `broker = FifoBroker("fifo://host:port")`.

Owns the broker of taskiq; extra `taskiq`. Built on the public client. Must not know a node.
"""

from fifo.taskiq.broker import FifoBroker

__all__ = ["FifoBroker"]
