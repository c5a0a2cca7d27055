"""Publishing: checks, batches of a turn, windows, and the outcomes for callers.

Owns `publish` and `publish_many`, and the window of unanswered bytes. `publish_stream` owns
numbers and order. One future per frame in `publish_many`, one per message in `publish`; messages
published one by one in the same turn of the loop share a frame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from math import inf
from typing import Any, Final, NamedTuple

from fifo.client import checks, limits
from fifo.client.connection.calls import EXPIRED, Tries, until
from fifo.client.connection.deadlines import Deadlines
from fifo.client.connection.session import Session
from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import FifoError, InvalidArgument, SessionEnded, again, with_progress
from fifo.client.publishing.confirms import Confirm, Confirmed, Confirms
from fifo.client.publishing.outbox import Outbox
from fifo.client.publishing.publish_stream import PublishFrame, PublishStream, Work
from fifo.client.publishing.queue_numbers import QueueNumbers
from fifo.wire import limits as wire
from fifo.wire.columns import Publication
from fifo.words.bounds import PRIORITY_DEFAULT


class Extras(NamedTuple):
    """The fields of a message beside its body, in their form for the wire."""

    key: bytes = b""
    headers: bytes = b""
    priority: int = PRIORITY_DEFAULT
    delay_ms: int = 0
    ttl_ms: int = 0
    dedup_id: bytes = b""

    @property
    def column_bytes(self) -> int:
        """The bytes of its key, headers and dedup id."""
        return len(self.key) + len(self.headers) + len(self.dedup_id)


PLAIN: Final = Extras()
"""The extras of most messages, which are known by this object, without a look at each field."""


class Singles:
    """Messages published one by one in one turn, in one frame: by columns, as they travel."""

    __slots__ = (
        "_bodies",
        "_extras",
        "_futures",
        "bytes_held",
        "column_bytes",
        "deadline",
        "numbers",
        "tries",
    )

    def __init__(self, number: int | None) -> None:
        self._bodies: list[bytes] = []
        self._futures: list[asyncio.Future[Any]] = []
        self._extras: list[Extras] | None = None
        """None while all are plain."""
        self.tries = Tries()
        self.bytes_held = 0
        self.column_bytes = 0
        self.deadline = 0.0
        self.numbers: Sequence[int] | None = None if number is None else (number,)

    def __len__(self) -> int:
        return len(self._bodies)

    def takes(self, body: bytes, extras: Extras, number: int | None) -> bool:
        """Whether it has room for one more; an explicit number never shares a frame."""
        return (
            number is None
            and self.numbers is None
            and len(self._bodies) < limits.FRAME_MESSAGES
            and self.bytes_held + len(body) <= limits.FRAME_BYTES
            and (
                extras is PLAIN
                or self.column_bytes + extras.column_bytes <= limits.FRAME_COLUMN_BYTES
            )
        )

    def add(
        self, body: bytes, extras: Extras, future: asyncio.Future[Any], deadline: float
    ) -> None:
        """Take it in; its caller waits until then."""
        if extras is not PLAIN or self._extras is not None:
            if self._extras is None:
                self._extras = [PLAIN] * len(self._bodies)
            self._extras.append(extras)
            self.column_bytes += extras.column_bytes
        self._bodies.append(body)
        self._futures.append(future)
        self.bytes_held += len(body)
        if deadline > self.deadline:
            self.deadline = deadline

    def pack(self) -> Publication | None:
        """The messages that somebody still waits for."""
        waits = [not future.done() for future in self._futures]
        if not all(waits):
            self._bodies = list(compress(self._bodies, waits))
            self._futures = list(compress(self._futures, waits))
            if self._extras is not None:
                self._extras = list(compress(self._extras, waits))
        if not self._bodies:
            return None
        if self._extras is None:
            return Publication(self._bodies)
        columns = zip(*self._extras, strict=True)
        return Publication(self._bodies, *map(_unless_all, columns, PLAIN))

    def done(self, confirmed: Confirmed | None, error: FifoError | None) -> None:
        """Each waiter gets its own confirm, or the error."""
        futures, stored = self._futures, 0
        if confirmed is not None:
            stored = confirmed.total
            for future, confirm in zip(futures, confirmed.each(), strict=False):
                if not future.done():
                    future.set_result(confirm)
        if error is None:
            return
        for future in futures[stored:]:
            if not future.done():
                future.set_exception(error if len(futures) == 1 else again(error))

    def abandoned(self) -> bool:
        """Whether all who waited have gone."""
        return all(future.done() for future in self._futures)


class Many:
    """A call of `publish_many`: once a part was refused, those behind it are given up."""

    __slots__ = ("failed",)

    def __init__(self) -> None:
        self.failed = False


class PublishPart:
    """A part of a `publish_many`: one frame, one future with (Confirmed, error or None)."""

    __slots__ = ("bytes_held", "deadline", "future", "many", "numbers", "publication", "tries")

    def __init__(
        self,
        many: Many,
        publication: Publication,
        size: int,
        numbers: Sequence[int] | None,
        future: asyncio.Future[Any],
    ) -> None:
        self.many = many
        self.publication = publication
        self.bytes_held = size
        self.numbers = numbers
        self.future = future
        self.deadline = inf  # until its turn comes to be waited for
        self.tries = Tries()

    def pack(self) -> Publication | None:
        """Return the messages, unless the caller has gone."""
        if self.abandoned():
            return None
        return self.publication

    def done(self, confirmed: Confirmed | None, error: FifoError | None) -> None:
        """Tell the caller."""
        if error is not None:
            self.many.failed = True
        if not self.future.done():
            self.future.set_result((confirmed, error))

    def abandoned(self) -> bool:
        """Whether the caller has gone, or has an error to raise for what comes before this."""
        return self.many.failed or self.future.done()


class Publisher:
    """All publishing of one client."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.queue_numbers = QueueNumbers()
        self._streams: dict[tuple[int, str], PublishStream] = {}
        self._outbox = Outbox(session)
        self._deadlines = Deadlines(session.loop)
        self._gathering: dict[tuple[int, str], Singles] = {}
        self._flushes = False
        """Whether what is gathered is sent at the end of this turn of the loop."""
        self._bytes = 0
        self._frames = 0
        self._room: deque[asyncio.Future[Any]] = deque()
        session.parts.append(self)

    # One message.

    async def publish(
        self,
        producer: int,
        queue: str,
        body: bytes,
        extras: Extras,
        number: int | None,
        timeout: Duration | None,
    ) -> Confirm:
        """Publish one message; its confirm. Raises what the node says, ConnectionLost, Timeout."""
        session = self.session
        session.check()
        loop = session.loop
        seconds = session.options.timeout if timeout is None else session.patience(timeout)
        deadline = loop.time() + seconds
        if self._is_full():
            await self._wait_for_room(queue, deadline, seconds)
        future: asyncio.Future[Any] = loop.create_future()
        singles = self._gathered(producer, queue, body, extras, number)
        singles.add(body, extras, future, deadline)
        self._bytes += len(body)
        self._deadlines.add(future, deadline)
        result = await future
        if result is EXPIRED:
            raise self._expired(queue, seconds, singles.tries)
        assert isinstance(result, Confirm)
        return result

    def _gathered(
        self, producer: int, queue: str, body: bytes, extras: Extras, number: int | None
    ) -> Singles:
        """The frame of this turn that takes the message."""
        at = producer, queue
        singles = self._gathering.get(at)
        if singles is not None:
            if singles.takes(body, extras, number):
                return singles
            self._flush(at)
        singles = self._gathering[at] = Singles(number)
        if not self._flushes:
            self._flushes = True
            self.session.loop.call_soon(self._flush_all)
        return singles

    def _flush_all(self) -> None:
        """Send what was gathered in a turn, for as many queues as that is, in few frames."""
        self._flushes = False
        if len(self._gathering) == 1:
            self._flush(next(iter(self._gathering)))
            return
        with self._outbox.together():
            for at in list(self._gathering):
                self._flush(at)

    def _flush(self, at: tuple[int, str]) -> None:
        singles = self._gathering.pop(at)
        if self.session.fatal is not None:
            singles.done(None, self.session.fatal)
            self._bytes -= singles.bytes_held
            return
        self.session.metrics.published += len(singles)
        self._add(self.stream(*at), singles)

    # Many messages.

    async def publish_many(
        self,
        producer: int,
        queue: str,
        batch: Batch,
        timeout: Duration | None,
    ) -> Confirms:
        """Publish in frames; one confirm per body, or the error of the first not stored."""
        seconds = self.session.patience(timeout)
        parts = await self._hand_over(producer, queue, batch, seconds)
        return await self._results(queue, parts, seconds)

    async def send_many(
        self,
        producer: int,
        queue: str,
        batch: Batch,
        timeout: Duration | None,
    ) -> asyncio.Task[Confirms]:
        """The same in two steps: all frames are in the window when this returns."""
        seconds = self.session.patience(timeout)
        parts = await self._hand_over(producer, queue, batch, seconds)
        return self.session.loop.create_task(self._results(queue, parts, seconds))

    async def _hand_over(
        self, producer: int, queue: str, batch: Batch, seconds: float
    ) -> list[PublishPart]:
        """Put the frames of a call into the window, one after the other as it has room."""
        self.session.check()
        loop = self.session.loop
        parts: list[PublishPart] = []
        many = Many()
        for publication, size, numbers in batch.parts():
            # The clock of the call starts again with each frame that found room: it bounds silence,
            # not the length of the list.
            if self._is_full():
                await self._wait_for_room(queue, loop.time() + seconds, seconds)
            part = PublishPart(many, publication, size, numbers, loop.create_future())
            parts.append(part)
            at = producer, queue
            if at in self._gathering:
                self._flush(at)
            self.session.metrics.published += len(publication.bodies)
            self._bytes += size
            self._add(self.stream(producer, queue), part)
            if many.failed:
                break
        return parts

    async def _results(self, queue: str, parts: list[PublishPart], seconds: float) -> Confirms:
        loop = self.session.loop
        done: list[Confirmed] = []
        stored = 0
        try:
            for part in parts:
                part.deadline = loop.time() + seconds
                answer = await until(part.future, part.deadline, loop)
                if isinstance(answer, tuple):
                    confirmed, error = answer
                else:
                    confirmed = None
                    error = self._expired(queue, seconds, part.tries)
                if confirmed is not None:
                    done.append(confirmed)
                    stored += confirmed.total
                if error is not None:
                    raise with_progress(error, Confirms(done), stored)
        except BaseException:
            for part in parts:
                part.future.cancel()
            raise
        return Confirms(done)

    # The window.

    def _is_full(self) -> bool:
        """Whether what is unanswered, and what goes at the end of this turn, fills the window."""
        return (
            self._bytes >= self.session.options.window_bytes
            or self._frames + len(self._gathering) >= limits.WINDOW_FRAMES
        )

    async def _wait_for_room(self, queue: str, deadline: float, seconds: float) -> None:
        loop = self.session.loop
        while self._is_full():
            waiter: asyncio.Future[Any] = loop.create_future()
            self._room.append(waiter)
            try:
                if await until(waiter, deadline, loop) is EXPIRED:
                    raise self._expired(queue, seconds, Tries())
            except asyncio.CancelledError:
                # Woken and cancelled at once: the room is for somebody else.
                self._wake()
                raise
            self.session.check()

    def _expired(self, queue: str, seconds: float, tries: Tries) -> FifoError:
        """The error of a publish whose time is over, with what is known of its transmissions."""
        if tries.refusal is None:
            refusals = (stream.refusal for stream in self._streams.values())
            tries.refusal = next((one for one in refusals if one is not None), None)
        return self.session.expired(seconds, f"publish to {queue!r}", tries)

    def _add(self, stream: PublishStream, work: Work) -> PublishFrame:
        self._frames += 1
        if self._room:
            self._wake()
        return stream.add(work)

    def released(self, work: Work) -> None:
        """Free the room of a frame that was answered or abandoned, for waiting publishers."""
        self._bytes -= work.bytes_held
        self._frames -= 1
        if self._room:
            self._wake()

    def _wake(self) -> None:
        while self._room and not self._is_full():
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def stream(
        self, producer: int, queue: str, last_stored: int = 0, queue_number: int = 0
    ) -> PublishStream:
        """The stream of a producer to a queue; what is stored there, where that is known."""
        found = self._streams.get((producer, queue))
        if found is None:
            if queue_number:
                self.queue_numbers.saw(queue, queue_number)
            found = PublishStream(
                self.session,
                self._outbox,
                queue,
                producer,
                last_stored,
                queue_number,
                self.queue_numbers,
                self.released,
            )
            self._streams[producer, queue] = found
        return found

    # The session's events.

    def resumed(self) -> None:
        """Connected: all that is unanswered goes again."""
        with self._outbox.together():
            for stream in self._streams.values():
                stream.resend()

    def detached(self) -> None:
        """Nothing to do: frames wait for the next connection."""

    def writable(self) -> None:
        """The connection takes bytes again."""
        with self._outbox.together():
            for stream in self._streams.values():
                stream.pump()

    def session_ended(self, error: SessionEnded, *, was_gone: bool) -> None:
        """Report what the session's own producer sent as unknown, where it may be stored."""
        for stream in self._streams.values():
            stream.session_ended(error, was_gone=was_gone)

    def failed(self, error: FifoError) -> None:
        """Nothing will be answered any more."""
        for stream in self._streams.values():
            stream.fail(error)
        for waiter in self._room:
            if not waiter.done():
                waiter.set_result(None)
        self._room.clear()
        self._deadlines.stop()

    def owes(self) -> bool:
        """Whether confirms are outstanding."""
        return self._frames > 0


class Batch:
    """The bodies of a `publish_many` with what belongs to each, checked, and cut into frames."""

    def __init__(
        self,
        bodies: Iterable[bytes],
        *,
        keys: Sequence[str | bytes | None] | None,
        headers: Sequence[Mapping[str, str] | None] | None,
        priorities: Sequence[int] | None,
        delays: Sequence[Duration | None] | None,
        ttls: Sequence[Duration | None] | None,
        dedup_ids: Sequence[str | bytes | None] | None,
        numbers: Sequence[int] | None,
    ) -> None:
        if isinstance(bodies, bytes | bytearray | memoryview | str):
            raise InvalidArgument("bodies: must be a list of bodies, not a single one")
        self._bodies = _checked_bodies(bodies)
        count = len(self._bodies)
        self._keys = _column(keys, "keys", count, checks.key)
        self._headers = _column(headers, "headers", count, checks.headers)
        self._dedup_ids = _column(dedup_ids, "dedup_ids", count, checks.dedup_id)
        self._priorities = _column(priorities, "priorities", count, checks.priority)
        self._delays = _column(delays, "delays", count, lambda one: _ms(one, "delay"))
        self._ttls = _column(ttls, "ttls", count, lambda one: _ms(one, "ttl", 1))
        self._numbers = None if numbers is None else _checked_numbers(numbers, count)

    def __len__(self) -> int:
        return len(self._bodies)

    def edit_headers(self, edit: Callable[[bytes], bytes]) -> None:
        """Replace the headers of each message, in their form for the wire."""
        self._headers = [edit(one) for one in self._headers or [b""] * len(self)]

    def parts(self) -> Iterable[tuple[Publication, int, Sequence[int] | None]]:
        """Frames: what each publishes, its bytes, its numbers where they are given."""
        start = 0
        while start < len(self._bodies):
            stop, size = self._stop(start)
            numbers = None if self._numbers is None else self._numbers[start:stop]
            column = None
            if numbers is not None and numbers[-1] - numbers[0] + 1 != len(numbers):
                column = numbers
            yield (
                Publication(
                    self._bodies[start:stop],
                    keys=_part(self._keys, start, stop),
                    headers=_part(self._headers, start, stop),
                    priorities=_part(self._priorities, start, stop),
                    delays_ms=_part(self._delays, start, stop),
                    ttls_ms=_part(self._ttls, start, stop),
                    dedup_ids=_part(self._dedup_ids, start, stop),
                    numbers=column,
                ),
                size,
                numbers,
            )
            start = stop

    def _stop(self, start: int) -> tuple[int, int]:
        """Where the frame that begins at `start` ends, and the bytes of its bodies."""
        bodies = self._bodies
        stop = min(start + limits.FRAME_MESSAGES, len(bodies))
        size = sum(map(len, bodies[start:stop]))
        blobs = [one for one in (self._keys, self._headers, self._dedup_ids) if one is not None]
        if size <= limits.FRAME_BYTES and not blobs:
            return stop, size
        size = columns = 0
        for at in range(start, stop):
            columns += sum([len(blob[at]) for blob in blobs])
            grown = size + len(bodies[at])
            if at > start and (grown > limits.FRAME_BYTES or columns > limits.FRAME_COLUMN_BYTES):
                return at, size
            size = grown
        return stop, size


def extras_of(
    *,
    key: str | bytes | None,
    headers: Mapping[str, str] | None,
    priority: int,
    delay: Duration | None,
    ttl: Duration | None,
    dedup_id: str | bytes | None,
) -> Extras:
    """Check what a message has beside its body, and convert it for the wire."""
    if (
        key is None
        and not headers
        and priority == PRIORITY_DEFAULT
        and delay is None
        and ttl is None
        and dedup_id is None
    ):
        return PLAIN
    return Extras(
        b"" if key is None else checks.key(key),
        checks.headers(headers) if headers else b"",
        checks.priority(priority),
        _ms(delay, "delay"),
        _ms(ttl, "ttl", 1),
        b"" if dedup_id is None else checks.dedup_id(dedup_id),
    )


def _checked_bodies(bodies: Iterable[bytes]) -> list[bytes]:
    listed = list(bodies)
    if set(map(type, listed)) - {bytes} or max(map(len, listed), default=0) > wire.BODY_BYTES_MAX:
        return [checks.body(body) for body in listed]
    return listed


def _column(values: Any, what: str, count: int, check: Any) -> list[Any] | None:
    if values is None:
        return None
    if isinstance(values, str | bytes | Mapping):
        raise InvalidArgument(f"{what}: must be a list with one entry per body")
    found = [check(value) for value in values]
    if len(found) != count:
        raise InvalidArgument(f"{what}: must have one entry per body: {count}, not {len(found)}")
    return found


def _checked_numbers(numbers: Sequence[int], count: int) -> Sequence[int]:
    if len(numbers) != count:
        raise InvalidArgument(f"numbers: must have one entry per body: {count}, not {len(numbers)}")
    if isinstance(numbers, range) and numbers.step == 1 and count:
        for end in (numbers[0], numbers[-1]):
            checks.integer(end, "numbers", 1, 2**63 - 1)
        return numbers
    found = list(numbers)
    below = 0
    for number in found:
        if checks.integer(number, "numbers", 1, 2**63 - 1) <= below:
            raise InvalidArgument("numbers: must ascend")
        below = number
    return found


def _part(column: list[Any] | None, start: int, stop: int) -> list[Any] | None:
    return None if column is None else column[start:stop]


def _unless_all(values: Sequence[Any], default: object) -> Sequence[Any] | None:
    return values if any(value != default for value in values) else None


def _ms(value: Duration | None, what: str, low_ms: int = 0) -> int:
    return 0 if value is None else milliseconds(value, what, low_ms=low_ms)
