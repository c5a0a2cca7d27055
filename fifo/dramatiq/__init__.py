"""dramatiq on fifo: `dramatiq.set_broker(FifoBroker("fifo://host:port"))`, in an app that is not
changed.

Owns the broker of dramatiq and its results; extra `dramatiq`. Built on the public blocking client.
Must not know a node.
"""

from fifo.dramatiq.broker import FifoBroker
from fifo.dramatiq.results import FifoResultBackend

__all__ = ["FifoBroker", "FifoResultBackend"]
