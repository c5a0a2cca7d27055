"""Requests about the audit log: its lines, page by page.

Owns the filter, and the bound of an answer. Must not know where lines come from:
`node/broker/audit.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgpack

from fifo.wire import Code, Frame
from fifo.wire.messages import Ok
from fifo.wire.operating import Audit
from node.broker import limits
from node.broker.audit import AuditLog, Line
from node.broker.connections.connection import Binding, Connection
from node.broker.requests.proposer import message_of


class AuditReads:
    """Handler of `Audit`."""

    def __init__(self, log: Callable[[], AuditLog | None]) -> None:
        self._log = log
        self._reading = 0

    def read(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Answer with the newest lines that the request wants."""
        message, correlation = message_of(frame, Audit), frame.correlation
        log = self._log()
        before = _id(message.before)
        if log is None:
            connection.refuse(correlation, Code.UNSUPPORTED, "this node keeps no audit log")
        elif message.before is not None and before is None:
            text = f"before: must be the id of a line, as in 17.3, not {message.before!r}"
            connection.refuse(correlation, Code.INVALID_ARGUMENT, text)
        elif self._reading >= limits.AUDIT_READS_MAX:
            text = "the audit log is being read for others; retry shortly"
            connection.refuse(correlation, Code.OVERLOADED, text)
        else:
            self._reading += 1
            connection.begin(0, 0)

            def done(lines: list[Line]) -> None:
                self._reading -= 1
                connection.end(0, 0)
                connection.send(Ok(_bounded(lines)), correlation)

            log.read(_wanted(message), before, min(message.limit, limits.AUDIT_LINES_MAX), done)


def _id(text: str | None) -> tuple[int, int] | None:
    parts = (text or "").split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _wanted(message: Audit) -> Callable[[Line], bool]:
    since = datetime.fromtimestamp(min(message.since_ms / 1000, limits.AUDIT_TIME_SECONDS_MAX), UTC)
    time = since.isoformat(timespec="milliseconds")

    def wanted(line: Line) -> bool:
        return (
            line["time"] >= time
            and message.queue in (None, line["queue"])
            and message.user in (None, line["user"])
        )

    return wanted


def _bounded(lines: list[Line]) -> list[Line]:
    """The first lines that fit an answer."""
    left_bytes = limits.LIST_BYTES_MAX
    for count, line in enumerate(lines):
        left_bytes -= len(msgpack.packb(line))
        if left_bytes < 0:
            return lines[:count]
    return lines
