"""The audit log: who changed what, from where, with what outcome (decisions.md, "The audit log").

Owns the notes, which stand in an entry before the command that they are about, and the lines that
each node makes of them when it applies the entry: so every node has all lines, as it has all
changes. Must not know files, nor what a command does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from fifo.machine.contract import Machine, Refused, Reply
from fifo.wire import messages as wire
from fifo.wire.membership import ChangeMembers
from fifo.wire.messages import Message
from fifo.wire.operating import ManageUser, MessageAction
from fifo.wire.upgrading import FinishUpgrade
from node.broker import limits
from node.journal.audit import AuditFiles, Line
from node.journal.io.jobs import Worker

__all__ = ["AUDITED", "BEGUN", "NOTE", "AuditFiles", "AuditLog", "Auditing", "Line", "Note"]

logger = logging.getLogger(__name__)

NOTE: Final = "note"
"""In the place of a command's code: no machine sees it."""

AUDITED: Final[Mapping[type[Message], str]] = {
    wire.Declare: "declare",
    wire.Update: "update",
    wire.QueueAction: "queue_action",
    wire.Move: "move",
    wire.Redrive: "redrive",
    MessageAction: "message_action",
    wire.EndSession: "end_session",
    wire.ForgetProducer: "forget_producer",
    wire.TransferLeadership: "transfer_leadership",
    ManageUser: "user",
    FinishUpgrade: "finish_upgrade",
    ChangeMembers: "change_members",
}
"""The requests that change what an operator set, or do an operator's work. Publishing, consuming
and settling are the work itself, and counted instead."""

BEGUN: Final = "begun"
"""The outcome of a transfer of leadership and of a change of members, which are no commands: the
log says who leads next, and who is a member."""

_LEFT_OUT: Final = frozenset(("queue", "columns"))
_SECRET: Final = frozenset(("password", "digest"))
"""Keys whose values are hashes of secrets: no log shows one."""


class Note(NamedTuple):
    """The origin of the next command of the log: who asked, from where, for what.

    `outcome`: of a request that no command follows, BEGUN or why it is refused; empty otherwise.
    """

    user: str
    address: str
    client: str
    verb: str
    queue: str | None
    what: dict[str, Any]
    outcome: str = ""


def noted(message: Message, user: str, address: str, client: str, outcome: str = "") -> list[Any]:
    """The plain form of a note about a request, for an entry."""
    kind = type(message)
    verb = getattr(message, "action", None) or AUDITED[kind]
    if kind is ManageUser:
        verb = f"user_{verb}"
    if kind is ChangeMembers:
        verb = f"member_{verb}"
    queue = getattr(message, "queue", None)
    return [NOTE, user, address, client, verb, queue, _what(message), outcome]


def _what(message: Message) -> dict[str, Any]:
    found = {}
    for field in fields(message):
        value = getattr(message, field.name)
        default = field.default if field.default is not MISSING else None
        if field.name not in _LEFT_OUT and value != default:
            found[field.name] = _short(value)
    return found


def _short(value: Any, depth: int = 0) -> Any:
    """A value in few bytes: a text is cut, and so is a map with very many keys."""
    if isinstance(value, str):
        most = limits.AUDIT_TEXT_CHARACTERS
        return value if len(value) <= most else value[: most - 3] + "..."
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Mapping) and depth < limits.AUDIT_DEPTH:
        items = list(value.items())[: limits.AUDIT_KEYS]
        return {
            _short(str(key)): "..." if key in _SECRET else _short(each, depth + 1)
            for key, each in items
        }
    return "..."


class AuditLog:
    """The files of a node, written and read off the event loop."""

    def __init__(self, files: AuditFiles, worker: Worker) -> None:
        self._files = files
        self._worker = worker

    def write(self, lines: Sequence[Line]) -> None:
        """Write lines, in order."""
        self._worker.run(partial(self._files.append, lines), _ended)

    def read(
        self,
        wanted: Callable[[Line], bool],
        before: tuple[int, int] | None,
        most: int,
        done: Callable[[list[Line]], None],
    ) -> None:
        """Call `done` with up to `most` lines, the newest first."""
        found: list[Line] = []

        def work() -> None:
            found.extend(self._files.found(wanted, before, most))

        def ended(error: BaseException | None) -> None:
            _ended(error)
            done(found)

        self._worker.run(work, ended)

    def close(self) -> None:
        """Write what is under way; harmless when repeated."""
        self._worker.close()
        self._files.close()


def _ended(error: BaseException | None) -> None:
    if error is not None:
        logger.error("event=audit_failed", exc_info=error)


class Auditing:
    """Makes the lines of one node; `write` takes them. `known`: the id of the last one there is."""

    def __init__(
        self,
        machine: Callable[[], Machine],
        write: Callable[[Sequence[Line]], None],
        known: tuple[int, int] = (0, 0),
    ) -> None:
        self._machine = machine
        self._write = write
        self._known = known

    def before(self, notes: Sequence[Note]) -> list[dict[str, Any]]:
        """Look at the queues of these notes before the entry is applied."""
        return [self._shown(note.queue) for note in notes]

    def applied(
        self,
        index: int,
        wall_ms: int,
        notes: Sequence[tuple[int, Note, Reply | None]],
        before: Sequence[dict[str, Any]],
    ) -> None:
        """Make the lines of an entry that was applied: each note with its place and the reply to
        its command; None where there is none."""
        time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
        lines = []
        for (place, note, reply), old in zip(notes, before, strict=True):
            if (index, place) <= self._known:
                continue  # Applied again after a restart.
            new = self._shown(note.queue)
            was, now = _differences(old, new)
            lines.append(
                {
                    "id": f"{index}.{place}",
                    "time": time,
                    "user": note.user or None,
                    "address": note.address,
                    "client": note.client,
                    "verb": note.verb,
                    "queue": note.queue,
                    "what": note.what,
                    "before": was,
                    "after": now,
                    **_outcome(note, reply),
                }
            )
        if lines:
            self._write(lines)

    def _shown(self, queue: str | None) -> dict[str, Any]:
        """A queue as changes concern it: its options, whether it is paused, its depth."""
        found = None if queue is None else self._machine().queue_overview(queue)
        if found is None:
            return {}
        kept = {key: found[key] for key in ("paused", "ready", "locked", "delayed")}
        return {**kept, **found["spec"]}


def _differences(old: dict[str, Any], new: dict[str, Any]) -> tuple[Any, Any]:
    """Of two states what differs; None for a queue that is not there."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    was, now = ({key: one.get(key) for key in keys} if one else None for one in (old, new))
    return was, now


def _outcome(note: Note, reply: Reply | None) -> dict[str, Any]:
    if isinstance(reply, Refused):
        return {"outcome": "refused", "reason": reply.text}
    if note.outcome == BEGUN:
        return {"outcome": BEGUN}
    if note.outcome:
        return {"outcome": "refused", "reason": note.outcome}
    return {"outcome": "done"}
