"""The errors of the data source, and the client's errors worded for a Spark console.

Owns one rule: whatever reaches Spark is one line that says what is wrong and what to do. Spark puts
it at the end of a Python traceback, so the line has to stand alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import fifo

_REMEDIES: Final[dict[type[fifo.FifoError], str]] = {
    fifo.QueueNotFound: "",  # The broker's text says it.
    fifo.SessionTaken: "only one running query or read may use a reservation: stop the other one,"
    " or give this one a name of its own",
    fifo.AuthenticationFailed: "check user and password in the option url",
    fifo.PermissionDenied: "ask for the permission, or use another user in the option url",
    fifo.Timeout: "check that a majority of the nodes runs (fifo status --url ...), or give the"
    " url a longer ?timeout=",
    fifo.ConnectionLost: "check the option url, and that a majority of the nodes runs"
    " (fifo status --url ...)",
    fifo.QueueFull: "consume from the queue or raise its limit (fifo queue update), then write"
    " again; with the option job nothing is stored twice",
    fifo.LimitReached: "see the limits of docs/spark.md",
}
"""By class; the first that fits. Others say by themselves what to do."""


class SourceError(fifo.FifoError):
    """The data source cannot go on; the text says why, and what to do."""


def told(error: fifo.FifoError, where: str) -> SourceError:
    """The client's error as one line: where, what, and what to do about it."""
    remedy = next((text for kind, text in _REMEDIES.items() if isinstance(error, kind)), "")
    text = f"{where}: {error}" + (f"; {remedy}" if remedy else "")
    return SourceError(" ".join(text.split()), detail=error.detail, unknown=error.unknown)


@contextmanager
def telling(where: str) -> Iterator[None]:
    """Inside, what the client raises becomes a SourceError that begins with `where`."""
    try:
        yield
    except SourceError:
        raise
    except fifo.FifoError as error:
        raise told(error, where) from error
