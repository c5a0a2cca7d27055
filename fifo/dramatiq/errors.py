"""The errors of fifo as dramatiq expects them.

Owns which errors are a lost connection, after which dramatiq tries again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from dramatiq.errors import ConnectionClosed

import fifo

_OF_THE_CONNECTION: Final = (
    fifo.ConnectionLost,
    fifo.Timeout,
    fifo.SessionEnded,
    fifo.SessionTaken,
    fifo.ClientClosed,
    fifo.Overloaded,
    OSError,
)


@contextlib.contextmanager
def broker_errors() -> Iterator[None]:
    """Raise `dramatiq.errors.ConnectionClosed` for what may pass: dramatiq tries again then."""
    try:
        yield
    except _OF_THE_CONNECTION as error:
        raise ConnectionClosed(error) from error
