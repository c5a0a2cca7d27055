"""A durable consumer: it has a name, and outlives every session (semantics.md 11).

Owns its verbs, and the messages that came for the verb under way. What it holds is the cluster's
business: nothing here is renewed or given back automatically. One verb at a time; the latest
opening of a name holds it, and the verbs of the earlier one raise SessionTaken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from fifo.client import checks
from fifo.client.connection.session import Session
from fifo.client.consuming.delivered import Delivered, by_token
from fifo.client.consuming.delivery import Delivery
from fifo.client.consuming.message import StoredMessage
from fifo.client.consuming.ranges import Range, chunks, from_tokens
from fifo.client.consuming.verbs import STATUSES, Settling, Status, settling
from fifo.client.durations import Duration
from fifo.client.errors import (
    ConnectionLost,
    FifoError,
    LockLost,
    MessageTooLarge,
    ProtocolError,
)
from fifo.wire import limits
from fifo.wire.messages import Durable, Message, Ok, Receipt, Settle

STEP_MESSAGES: Final = 10_000
"""Messages of one `reserve`, or of one request of a `fetch`: what the machine does in a step."""

_MOST: Final = 2**63 - 1
_FETCHES: Final = 3
"""Answers that may come without their messages, before a verb ends with an error: each is one of a
node whose leadership just ended."""

_HOLD: Final = 1
"""`first` of a reserve that asks for no messages."""


class DurableMessage(StoredMessage):
    """A message that a durable consumer holds, under its `token`."""

    __slots__ = ("token",)

    def __init__(self, delivery: Delivery, index: int) -> None:
        super().__init__(delivery, index)
        self.token = delivery.first_token + index


class NotAcked(NamedTuple):
    """Tokens first..last that an ack could not settle, and why: mostly `lock_lost`."""

    first: int
    last: int
    status: Status


class Verdict(NamedTuple):
    """The outcome for tokens first..last of a `settle`."""

    first: int
    last: int
    status: Status


class Hold(NamedTuple):
    """The tokens of a `hold`, and what their bodies left of its `max_bytes`."""

    tokens: range
    left_bytes: int


class Fetched(NamedTuple):
    """A part of a fetch: its messages, the tokens among them that were lost, and the token to go on
    with, 0 at the end. Other holes have had a verdict."""

    messages: Delivered[DurableMessage]
    lost: tuple[Range, ...]
    rest: int


class Opened(NamedTuple):
    """A durable consumer as one object opened it: others can use it so, without taking it over."""

    consumer: int
    generation: int


class DurableConsumer:
    """A durable consumer's verbs; the first of them opens it, unless `opened` says who has.

    `generation` counts the openings of the name; `held` are the ranges of tokens that were locked
    when this one opened it, `lost` those that it had lost, `next_token` the token of the next
    message then.
    """

    def __init__(
        self,
        session: Session,
        queue: str,
        name: str,
        options: Mapping[str, Any] | None = None,
        opened: Opened | None = None,
    ) -> None:
        self.queue = queue
        self.name = name
        self.consumer, self.generation = opened or (0, 0)
        self.next_token = 0
        self.held: tuple[Range, ...] = ()
        self.lost: tuple[Range, ...] = ()
        self._options = dict(options or {})
        self._session = session
        self._verb = asyncio.Lock()
        self._handed_below = 0
        self._came: list[Delivery] | None = None

    def __repr__(self) -> str:
        return f"<durable consumer {self.name} of {self.queue}, generation {self.generation}>"

    async def open(self) -> tuple[tuple[int, int], ...]:
        """Find or create it, and take it over; the ranges of tokens that it holds.

        Every verb does it where it was not done; again after SessionTaken it takes the name back.
        Raises LockLost, once, where the cluster has forgotten tokens that it had handed out.
        """
        async with self._verb:
            await self._open()
        return self.held

    async def reserve(self, count: int, *, runs: bool = False) -> list[DurableMessage]:
        """Lock up to `count` ready messages under the next tokens; none only where none is ready,
        the queue is paused, or this consumer holds all that one may hold (65 535).

        With `runs` there may be several of a key, in order, on a queue with `ordering="key"`
        (semantics.md 11.22): of those keys of which this consumer has all that is out.
        Not retried automatically: where the answer is lost (`unknown`), `open` shows what is held.
        """
        checks.integer(count, "count", 1, STEP_MESSAGES)
        async with self._verb:
            return list((await self._messages("reserve", 0, count, runs=runs))[0])

    async def hold(self, count: int, max_bytes: int | None = None, *, runs: bool = False) -> Hold:
        """As `reserve`, but nothing is sent: the tokens, for a `fetch` here or elsewhere.

        With `max_bytes` it ends with the message whose body makes it so many bytes.
        """
        checks.integer(count, "count", 1, STEP_MESSAGES)
        bound = _bytes(max_bytes)
        async with self._verb:
            answer = await self._do("reserve", _HOLD, count, safe=False, max_bytes=bound, runs=runs)
        return Hold(self._tokens(answer, "reserve"), _result(answer, "reserve")["left_bytes"])

    async def fetch(self, first: int, last: int) -> list[DurableMessage]:
        """Fetch the still locked messages of tokens first..last, in order; the same each time."""
        checks.integer(first, "first", 1, _MOST)
        checks.integer(last, "last", first, _MOST)
        async with self._verb:
            return await self._fetch(first, last)

    async def fetch_part(
        self, first: int, last: int, max_bytes: int, *, bodies: bool = True
    ) -> Fetched:
        """As `fetch`, up to the message whose body makes it `max_bytes`, and with what was lost.

        With `bodies=False` the cluster may leave bodies, keys and headers out: one of 0.1.0 does
        not. Raises MessageTooLarge where it holds more than 10,000 of these tokens.
        """
        checks.integer(first, "first", 1, _MOST)
        checks.integer(last, "last", first, _MOST)
        async with self._verb:
            bound = _bytes(max_bytes)
            messages, answer = await self._messages("fetch", first, last, bound, bodies=bodies)
        result = _result(answer, "fetch")
        return Fetched(messages, _ranges(result["lost"]), result["rest"])

    async def settle(
        self,
        verb: str,
        tokens: Iterable[int],
        *,
        delay: Duration | None = None,
        reason: str | None = None,
        description: str | None = None,
        exception: BaseException | None = None,
    ) -> tuple[Verdict, ...]:
        """Give a verdict on single tokens: `ack`, `nack`, `release` or `terminate`, again without
        harm. What became of each: one that had a verdict before is `already_settled`.

        `delay` is for nack and release, the texts are for terminate.
        """
        what = settling(verb, delay, reason, description, exception)
        asked = from_tokens(sorted({*tokens}))
        if asked:
            checks.integer(asked[0][0], "token", 1, _MOST)
            checks.integer(asked[-1][1], "token", 1, _MOST)
        found: list[Verdict] = []
        async with self._verb:
            await self._opened()
            for part in chunks(asked, limits.SETTLE_RANGES_MAX, limits.SETTLE_MESSAGES_MAX):
                found += await self._settle(what, part)
        return tuple(found)

    async def _settle(self, what: Settling, part: tuple[Range, ...]) -> list[Verdict]:
        request = Settle(
            self.consumer,
            what.verb,
            part,
            delay_ms=what.delay_ms,
            reason=what.reason,
            description=what.description,
            exception_type=what.exception_type,
            exception_text=what.exception_text,
            stack=what.stack,
            generation=self.generation,
        )
        answer = (await self._session.call(request)).message
        if not isinstance(answer, Receipt):
            raise _unexpected(Receipt, "settle", answer)
        return [Verdict(one[0], one[1], _status(one[2])) for one in answer.results]

    async def ack(self, upto: int) -> tuple[NotAcked, ...]:
        """Settle all tokens up to this one, again without harm; what could not be settled."""
        checks.integer(upto, "upto", 0, _MOST)
        async with self._verb:
            answer = await self._do("ack", 0, upto)
            if isinstance(answer, Receipt) and answer.results:
                # It was heard: the next ack need not name it again. No harm where that gets lost.
                with contextlib.suppress(FifoError):
                    await self._do("ack", answer.results[-1][1] + 1)
        if not isinstance(answer, Receipt):
            raise _unexpected(Receipt, "ack", answer)
        return tuple(NotAcked(one[0], one[1], _status(one[2])) for one in answer.results)

    async def renew(self) -> None:
        """Lock everything that it holds anew, from now on."""
        async with self._verb:
            await self._do("renew")

    async def forget(self) -> None:
        """End it: what it holds goes back, uncounted."""
        async with self._verb:
            await self._do("forget", safe=False)
            self.generation = 0

    def deliver(self, delivery: Delivery) -> None:
        """Take messages for the verb under way; others stay locked and can be fetched."""
        if self._came is not None:
            self._came.append(delivery)

    @property
    def opened(self) -> Opened:
        """The numbers that another client needs to fetch from it."""
        return Opened(self.consumer, self.generation)

    # Within.

    async def _opened(self) -> None:
        if not self.generation:
            await self._open()

    async def _open(self) -> None:
        request = Durable(self.queue, self.name, "open", 0, 0, 0, self._options or None)
        result = _result((await self._session.call(request)).message, "open")
        same = result["consumer"] == self.consumer
        self.consumer, self.generation = result["consumer"], result["generation"]
        self.next_token = result["next_token"]
        self.held, self.lost = _ranges(result["held"]), _ranges(result["lost"])
        self._session.listen(self.consumer, self)
        handed_below, self._handed_below = self._handed_below, self.next_token
        if same and self.next_token < handed_below:
            raise self._forgotten(handed_below, self.next_token)

    async def _fetch(self, first: int, last: int) -> list[DurableMessage]:
        """In halves where it is more than the machine sends in one step."""
        try:
            return list((await self._messages("fetch", first, last))[0])
        except MessageTooLarge:
            if last - first < STEP_MESSAGES:
                raise
        middle = (first + last) // 2
        return await self._fetch(first, middle) + await self._fetch(middle + 1, last)

    async def _messages(
        self,
        verb: str,
        first: int,
        last: int,
        max_bytes: int = 0,
        *,
        bodies: bool = True,
        runs: bool = False,
    ) -> tuple[Delivered[DurableMessage], Message]:
        """The messages of a verb, and its answer. They come before it, except where the node of
        0.1.0 that led until now could not read them any more: what did not come is fetched.

        Raises ConnectionLost where that, too, brings fewer messages than answers say.
        """
        found, answer = await self._asked(verb, first, last, max_bytes, bodies=bodies, runs=runs)
        if verb == "reserve":
            tokens = self._tokens(answer, "fetch")
            first, last = tokens.start, tokens.stop - 1
        whole, fetches = answer, 0
        while len(found) < _result(whole, verb)["count"]:
            if fetches == _FETCHES:
                raise ConnectionLost(
                    f"{self!r}: fewer messages of tokens {first} to {last} came than are locked;"
                    " fetch them"
                )
            found, whole = await self._asked("fetch", first, last, max_bytes, bodies=bodies)
            fetches += 1
        return found, answer if verb == "reserve" else whole

    async def _asked(
        self,
        verb: str,
        first: int,
        last: int,
        max_bytes: int,
        *,
        bodies: bool,
        runs: bool = False,
    ) -> tuple[Delivered[DurableMessage], Message]:
        """The messages that came before the answer to a verb, and that."""
        await self._opened()
        # Where another object of this name was opened in between, its deliveries went there.
        self._session.listen(self.consumer, self)
        came: list[Delivery] = []
        self._came = came
        try:
            safe = verb == "fetch"
            answer = await self._do(
                verb, first, last, safe=safe, max_bytes=max_bytes, bodies=bodies, runs=runs
            )
        finally:
            self._came = None
        tokens = self._tokens(answer, verb)
        wanted = tokens if verb == "reserve" else range(first, last + 1)
        return Delivered(by_token(came, wanted), DurableMessage), answer

    async def _do(
        self,
        verb: str,
        first: int = 0,
        last: int = 0,
        *,
        safe: bool = True,
        max_bytes: int = 0,
        bodies: bool = True,
        runs: bool = False,
    ) -> Message:
        await self._opened()
        request = Durable(
            self.queue,
            self.name,
            verb,
            self.generation,
            first,
            last,
            consumer=self.consumer,
            max_bytes=max_bytes,
            bodies=bodies,
            runs=runs,
        )
        frame = await self._session.call(request, safe=safe)
        message: Message = frame.message
        return message

    def _tokens(self, answer: Message, verb: str) -> range:
        """The tokens that an answer speaks of."""
        result = _result(answer, verb)
        if result["consumer"] != self.consumer:
            raise LockLost("this durable consumer was forgotten, and another has its name now")
        first = result["first_token"]
        tokens = range(first, first + result["count"])
        if verb == "reserve":
            if first < self._handed_below:
                raise self._forgotten(self._handed_below, first)
            self._handed_below = max(first, tokens.stop)
        return tokens

    def _forgotten(self, below: int, next_token: int) -> LockLost:
        """The error where the cluster knows less than it has answered: a loss must be loud."""
        return LockLost(
            f"{self!r} has lost locks that were confirmed: token {below - 1} was handed out, and"
            f" the next is {next_token}; the cluster was restored from an older state, or lost its"
            " disks; open it again"
        )


def _result(answer: Message, verb: str) -> dict[str, Any]:
    """The map that the node has answered."""
    result = answer.result if isinstance(answer, Ok) else None
    if not isinstance(result, dict):
        raise _unexpected(Ok, verb, answer)
    return result


def _ranges(ends: list[int]) -> tuple[Range, ...]:
    """Ranges that came as a plain list, first and last in turn."""
    return tuple(zip(ends[::2], ends[1::2], strict=True))


def _bytes(max_bytes: int | None) -> int:
    if max_bytes is not None:
        checks.integer(max_bytes, "max_bytes", 1, _MOST)
    return max_bytes or 0


def _status(number: int) -> Status:
    return STATUSES[min(number, len(STATUSES) - 1)]


def _unexpected(expected: type[Message], verb: str, answer: Message) -> ProtocolError:
    return ProtocolError(
        f"expected {expected.__name__} in reply to Durable {verb}, got {type(answer).__name__}"
    )
