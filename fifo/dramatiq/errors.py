"""The errors of fifo as dramatiq expects them.

Owns which errors are a lost connection, after which dramatiq tries again. What no second try mends
stays the error of fifo that it is.
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

_REFUSED: Final = (fifo.PermissionDenied, fifo.AuthenticationFailed)
"""Errors of the user that are an OSError as well (a PermissionError), and no lost connection."""


@contextlib.contextmanager
def broker_errors() -> Iterator[None]:
    """Raise `dramatiq.errors.ConnectionClosed` for what may pass: dramatiq tries again then.

    A missing permission and a wrong password are raised as they are.
    """
    try:
        yield
    except _REFUSED:
        raise
    except _OF_THE_CONNECTION as error:
        raise ConnectionClosed(error) from error
