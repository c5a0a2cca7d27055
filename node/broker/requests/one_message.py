"""Requests about one message by its id: look for it, and do with it what an operator says.

Owns the way from an id to the place where the message stands, which the command carries: the
machine checks it again, and refuses where the message has moved on meanwhile. Must not know what an
action does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fifo.machine.contract import (
    PLACES,
    Machine,
    Reply,
    Standing,
    Wanted,
    commands,
)
from fifo.wire import Code, Frame, columns
from fifo.wire.messages import Ok
from fifo.wire.operating import Find, MessageAction
from fifo.words.actions import ACTIONS, Action
from node.broker import deliveries, limits, views
from node.broker.clock import ClusterClock
from node.broker.conditions import of_find
from node.broker.connections.connection import Binding, Connection
from node.broker.connections.deferred_frames import PeekAnswer
from node.broker.connections.find_answer import FindAnswer
from node.broker.lock_clock import LockClock
from node.broker.reads import WhenCurrent
from node.broker.requests.proposer import Proposer, message_of, refuse_no_queue
from node.users import Permission

_EDITED = frozenset(
    (
        columns.SIZES,
        columns.KEY_LENGTHS,
        columns.KEY_BLOB,
        columns.HEADER_LENGTHS,
        columns.HEADER_BLOB,
    )
)
_ONWARD = frozenset((Action.RETRY, Action.RESEND))
"""Actions that without a target send a dead letter on to its source."""


class OneMessage:
    """Handler of `Find` and `MessageAction`."""

    def __init__(
        self,
        machine: Machine,
        locks: LockClock,
        clock: ClusterClock,
        read_area: deliveries.ReadArea,
        when_current: WhenCurrent,
        proposer: Proposer,
    ) -> None:
        self._machine = machine
        self._locks = locks
        self._clock = clock
        self._read_area = read_area
        self._when_current = when_current
        self._proposer = proposer

    # --- looking ----------------------------------------------------------------------------------

    def find(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Look for messages by id or key, or page by page."""
        message = message_of(frame, Find)
        wanted = _wanted(message)
        if isinstance(wanted, str):
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, wanted)
        else:
            self._when_current(connection, frame, self._find(connection, frame, wanted))

    def _find(self, connection: Connection, frame: Frame, wanted: Wanted) -> Iterator[None]:
        message = message_of(frame, Find)
        if not self._machine.has_queue(message.queue):
            refuse_no_queue(connection, frame.correlation, message.queue)
            return
        conditions = of_find(message)
        most = limits.FIND_LOOKED_MESSAGES if conditions.given else message.limit
        found, after = yield from self._machine.search(message.queue, wanted, message.after, most)
        found = [one for one in found if conditions.may_fit(one.run)]
        if not conditions.read_the_log and len(found) > message.limit:
            found, after = found[: message.limit], found[message.limit].position
        runs = deliveries.in_one_peek([one.run for one in found])
        if len(runs) < len(found):
            found, after = found[: len(runs)], found[len(runs)].position
        shown = tuple([self._shown(message.queue, one) for one in found])
        if conditions.read_the_log:
            connection.send_deferred(
                FindAnswer(connection, frame, found, shown, after, self._read_area, conditions)
            )
        else:
            connection.send_deferred(
                PeekAnswer(connection, frame, message.queue, runs, self._read_area, shown, after)
            )

    def _shown(self, queue: str, one: Standing) -> views.View:
        return views.standing_view(self._machine, self._locks, queue, one, self._clock.now_ms())

    # --- acting -----------------------------------------------------------------------------------

    def act(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Do one action on one message."""
        message = message_of(frame, MessageAction)
        if message.action not in ACTIONS:
            text = f"unknown action {message.action!r}: use one of {', '.join(ACTIONS)}"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
            return
        wanted = _parsed(message.id)
        if wanted is None:
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, _no_id(message.id))
            return
        try:
            layout = _content(message, frame.raw)
        except columns.ColumnError as error:
            connection.refuse(frame.correlation, error.code, str(error))
            return
        pieces = self._act(connection, frame, wanted, layout)
        self._when_current(connection, frame, pieces)

    def _act(
        self,
        connection: Connection,
        frame: Frame,
        wanted: tuple[int, int, int],
        layout: columns.Layout | None,
    ) -> Iterator[None]:
        message = message_of(frame, MessageAction)
        if not self._machine.has_queue(message.queue):
            refuse_no_queue(connection, frame.correlation, message.queue)
            return
        found, _ = yield from self._machine.search(message.queue, Wanted(wanted), 0, 1)
        if not found:
            text = f"queue {message.queue!r} has no message {message.id}, or not any more"
            connection.refuse(frame.correlation, Code.MESSAGE_NOT_FOUND, text)
            return
        one = found[0]
        version = views.version_of(one)
        if message.version not in (None, version):
            text = (
                f"message {message.id} is not as it was found: its version is {version}, not"
                f" {message.version}; look at it again"
            )
            detail = {"version": version}
            connection.refuse(frame.correlation, Code.MESSAGE_NOT_FOUND, text, detail)
            return
        lacks = self._lacks(connection, message, one)
        if lacks is not None:
            connection.refuse(frame.correlation, Code.PERMISSION_DENIED, lacks)
            return
        self._propose(connection, frame, one, layout)

    def _lacks(self, connection: Connection, message: MessageAction, one: Standing) -> str | None:
        """A dead letter goes back to its source: that may be a queue of another user."""
        letter = one.run.dead_letter
        onward = message.target is None and ACTIONS[message.action] in _ONWARD
        if connection.rights is None or letter is None or not onward:
            return None
        return connection.rights.lacks(letter.source, Permission.PUBLISH)

    def _propose(
        self,
        connection: Connection,
        frame: Frame,
        one: Standing,
        layout: columns.Layout | None,
    ) -> None:
        message = message_of(frame, MessageAction)
        run = one.run
        command = commands.MessageAction(
            message.queue,
            int(ACTIONS[message.action]),
            (run.queue_number, run.producer, run.number),
            one.position,
            one.consumer,
            one.token,
            message.target,
            message.delay_ms,
            message.reason,
            message.description,
        )
        if layout is not None:
            command = replace(command, content=_places(layout, 0))

        def placed(at: int) -> commands.MessageAction:
            assert layout is not None, "only an edit has a raw part"
            return replace(command, content=_places(layout, at))

        def answer(reply: Reply) -> None:
            connection.send(Ok({"id": message.id, "was": one.place}), frame.correlation)

        self._proposer.ask(
            connection,
            frame,
            command,
            answer,
            raw=bytes(frame.raw) if layout is not None else b"",
            placed=None if layout is None else placed,
        )


def _parsed(text: str) -> tuple[int, int, int] | None:
    """The three numbers of an id; None where it is none."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    queue, producer, number = (int(part) for part in parts)
    return (queue, producer, number) if min(queue, producer, number) > 0 else None


def _no_id(text: str) -> str:
    return f"{text!r} is no message id; an id is three numbers, as in 3.17.42 (shown by a find)"


def _wanted(message: Find) -> Wanted | str:
    """The goal of the search, or why there can be none."""
    if message.id is not None and message.key is not None:
        return "look for an id or for a key, not for both"
    if message.place not in (None, *PLACES):
        return f"unknown place {message.place!r}: use one of {', '.join(PLACES)}"
    parsed = None if message.id is None else _parsed(message.id)
    if message.id is not None and parsed is None:
        return _no_id(message.id)
    return Wanted(parsed, message.key, message.place)


def _content(message: MessageAction, raw: memoryview) -> columns.Layout | None:
    """The new content of a resent message; None where it keeps its own. Raises ColumnError."""
    if not message.columns:
        return None
    if ACTIONS[message.action] is not Action.RESEND:
        text = f"only a resend changes a message, not a {message.action}"
        raise columns.ColumnError(Code.INVALID_ARGUMENT, text)
    layout = columns.lay_out(message.columns, raw, 1, _EDITED)
    for _ in columns.check_headers(layout):
        pass  # one message's: at most 64 KiB
    return layout


def _places(
    layout: columns.Layout, at: int
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Body, key and headers as (offset in the entry's area, bytes)."""

    def blob(tag: int) -> tuple[int, int]:
        offset, size = layout.places.get(tag, (0, 0))
        return at + offset, size

    body = (at + layout.bodies_at, layout.bodies_bytes)
    return body, blob(columns.KEY_BLOB), blob(columns.HEADER_BLOB)
