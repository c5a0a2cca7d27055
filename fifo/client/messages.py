"""Find a message by its id, and act on it as an operator (semantics.md 14).

Owns these methods of the client, and the whole content that an edited message needs. Must not know
where a message stands: the leader finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Unpack

from fifo.client import checks, redriving
from fifo.client.connection.session import Session
from fifo.client.consuming.delivery import Delivery
from fifo.client.consuming.message import StoredMessage
from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import InvalidArgument, MessageNotFound, ProtocolError
from fifo.client.keywords import RedriveKeywords
from fifo.client.matching import MatchKeywords, match
from fifo.client.publishing.confirms import Confirm
from fifo.client.views import DeadLetterGroup, PlaceView, view, views
from fifo.wire import Buffer
from fifo.wire import limits as wire
from fifo.wire.columns import Publication, pack_publication
from fifo.wire.messages import Ok, Peeked, Redrive
from fifo.wire.operating import Find, MessageAction
from fifo.words.actions import ACTIONS

Action = Literal["retry", "unlock", "delay", "cancel", "delete", "terminate", "move", "resend"]
Place = Literal["ready", "locked", "delayed"]

KEEP: Final = object()
"""Stands for a key, and for headers, that a resent message keeps."""


class FoundMessage(StoredMessage):
    """A message where it stands: `place` says ready, locked or delayed, who holds it, how long."""

    __slots__ = ("place",)

    def __init__(self, delivery: Delivery, index: int, place: PlaceView) -> None:
        super().__init__(delivery, index)
        self.place = place

    def as_dict(self) -> dict[str, Any]:
        """The place as the node sent it."""
        return self.place.as_dict()


@dataclass(frozen=True, slots=True)
class FoundPage:
    """Messages that were found; `after` is what finds the next ones, 0 where there are none."""

    messages: tuple[FoundMessage, ...]
    after: int


class MovedPage(NamedTuple):
    """The number of messages that were moved; `after` is where to go on, 0 where all is done."""

    moved: int
    after: int


class MessageVerbs:
    """The methods of a client about single messages."""

    _session: Session
    publish: Callable[..., Awaitable[Confirm]]

    async def find(
        self,
        queue: str,
        *,
        key: str | bytes | None = None,
        place: Place | None = None,
        limit: int = 10,
        after: int = 0,
        timeout: Duration | None = None,
        **conditions: Unpack[MatchKeywords],
    ) -> FoundPage:
        """Look through a queue, wherever its messages stand: all of them, or those with a key.

        `exception_type`, `stack_line` (as dead letters are grouped by), `headers` and `older_than`
        (since it was published) are looked at by the node, of 500 messages for a page. It may hold
        fewer than `limit`, even none, and not be the last: go on with `after`.
        """
        checks.name(queue, "queue")
        if place is not None:
            checks.one_of(place, "place", "ready", "locked", "delayed")
        wanted = checks.key(key) or None
        checks.integer(limit, "limit", 1, wire.FIND_MESSAGES_MAX)
        checks.integer(after, "after", 0, 2**63 - 1)
        wants = match(conditions, self._session.environment.wall())
        request = Find(
            queue,
            None,
            wanted,
            place,
            after,
            limit,
            wants.exception_type,
            wants.stack_line,
            wants.named_headers,
            wants.published_by_ms,
        )
        page = await self._find(request, timeout)
        return FoundPage(tuple(filter(wants.fits, page.messages)), page.after)

    async def move_found(
        self,
        queue: str,
        target: str,
        *,
        limit: int = wire.FIND_MESSAGES_MAX,
        after: int = 0,
        timeout: Duration | None = None,
        **conditions: Unpack[MatchKeywords],
    ) -> MovedPage:
        """Move the ready messages of one page that meet the conditions of `find`, each by its id.

        One that was handed out meanwhile stays. Go on with `after` of the answer until it is 0.
        """
        page = await self.find(
            queue, place="ready", limit=limit, after=after, timeout=timeout, **conditions
        )
        moved = await asyncio.gather(
            *(self._move_one(queue, target, message, timeout) for message in page.messages)
        )
        return MovedPage(sum(moved), page.after)

    async def _move_one(
        self, queue: str, target: str, message: FoundMessage, timeout: Duration | None
    ) -> bool:
        try:
            await self.act(
                queue,
                message.id,
                "move",
                version=message.place.version,
                target=target,
                timeout=timeout,
            )
        except MessageNotFound:
            return False
        return True

    async def message(
        self, queue: str, id: str, *, timeout: Duration | None = None
    ) -> FoundMessage:
        """The message with this id, wherever it stands in the queue. Raises MessageNotFound."""
        checks.name(queue, "queue")
        _check_id(id)
        page = await self._find(Find(queue, id, limit=1), timeout)
        if not page.messages:
            raise MessageNotFound(f"queue {queue!r} has no message {id}, or not any more")
        return page.messages[0]

    async def _find(self, request: Find, timeout: Duration | None) -> FoundPage:
        frame = await self._session.call(request, timeout)
        message = frame.message
        if not isinstance(message, Peeked) or len(message.places) != message.count:
            raise ProtocolError(f"expected Peeked with places, got {type(message).__name__}")
        environment = self._session.environment
        delivery = Delivery(message, frame.raw, environment.monotonic(), environment.wall())
        found = [
            FoundMessage(delivery, index, view(PlaceView, place))
            for index, place in enumerate(message.places)
        ]
        return FoundPage(tuple(found), message.after)

    async def act(
        self,
        queue: str,
        id: str,
        action: Action,
        *,
        version: str | None = None,
        target: str | None = None,
        delay: Duration | None = None,
        reason: str | None = None,
        description: str | None = None,
        body: bytes | None = None,
        key: Any = KEEP,
        headers: Any = KEEP,
        timeout: Duration | None = None,
    ) -> str:
        """Do one action on one message; returns where it stood: ready, locked or delayed.

        `retry`, `unlock`, `delay`, `cancel`, `delete`, `terminate`, `move` or `resend`, the last
        perhaps with another `body`, `key` or `headers` (None: without). With `version`, as
        `message.place` has it, only if the message stands as it was found. Raises MessageNotFound.
        """
        checks.name(queue, "queue")
        _check_id(id)
        checks.one_of(action, "action", *ACTIONS)
        if target is not None:
            checks.name(target, "target")
        edited, raw = (), ()  # type: tuple[tuple[int, int], ...], tuple[Buffer, ...]
        if body is not None or key is not KEEP or headers is not KEEP:
            if action != "resend":
                raise InvalidArgument(f"only a resend changes a message, not a {action}")
            found = await self.message(queue, id, timeout=timeout)
            version = version or found.place.version  # what is kept is that message's
            edited, raw = _content(found, body, key, headers)
        request = MessageAction(
            queue,
            id,
            action,
            version,
            target,
            None if delay is None else milliseconds(delay, "delay"),
            reason,
            description,
            edited,
        )
        # Once more after an unknown outcome, it would say that the message is not there any more.
        frame = await self._session.call(request, timeout, safe=False, raw=raw)
        if not isinstance(frame.message, Ok) or not isinstance(frame.message.result, dict):
            raise ProtocolError(f"expected Ok with a map, got {type(frame.message).__name__}")
        return str(frame.message.result.get("was", ""))

    async def dead_letters(
        self, queue: str, *, timeout: Duration | None = None, **conditions: Unpack[RedriveKeywords]
    ) -> list[DeadLetterGroup]:
        """The dead letters of a queue in groups that are alike, the largest first: by reason,
        source, exception type and the line of the stack. The conditions are those of `redrive`."""
        checks.name(queue, "queue")
        options = {**redriving.options(conditions, dry_run=True), "groups": True}
        frame = await self._session.call(Redrive(queue, None, options), timeout)
        if not isinstance(frame.message, Ok) or not isinstance(frame.message.result, dict):
            raise ProtocolError(f"expected Ok with a map, got {type(frame.message).__name__}")
        return list(views(DeadLetterGroup, frame.message.result.get("groups", [])))

    async def copy(
        self,
        queue: str,
        id: str,
        target: str,
        *,
        body: bytes | None = None,
        key: Any = KEEP,
        headers: Any = KEEP,
        timeout: Duration | None = None,
    ) -> Confirm:
        """Publish a copy of a message, perhaps edited, to a queue; the message itself stays.

        The copy has an id of its own, and is stored once, as any publish.
        """
        found = await self.message(queue, id, timeout=timeout)
        return await self.publish(
            target,
            bytes(found.body) if body is None else body,
            key=found.key if key is KEEP else key,
            headers=found.headers if headers is KEEP else headers,
            priority=found.priority,
            timeout=timeout,
        )


def _check_id(id: object) -> None:
    parts = id.split(".") if isinstance(id, str) else []
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidArgument(
            f"id: must be a message id of three numbers, as in 3.17.42, not {id!r:.80}"
        )


def _content(
    found: FoundMessage, body: bytes | None, key: Any, headers: Mapping[str, str] | Any
) -> tuple[tuple[tuple[int, int], ...], tuple[Buffer, ...]]:
    """The whole of an edited message, as columns."""
    one_key = checks.key(found.key if key is KEEP else key)
    one_headers = checks.headers(found.headers if headers is KEEP else headers)
    listed, parts = pack_publication(
        Publication(
            [found.body if body is None else checks.body(body)],
            keys=[one_key] if one_key else None,
            headers=[one_headers] if one_headers else None,
        )
    )
    return listed, tuple(parts)
