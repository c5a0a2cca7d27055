"""Messages kept under a name: the durable consumer behind streams and `ackMode=manual`.

Owns opening it, taking more, splitting what is held into tasks, reading it in a task, keeping its
locks, and the functions that users call between reads. When a batch ends is the business of
`streaming`; which mode a read is in, of `reading`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import fifo
from fifo.blocking import BlockingClient, BlockingDurable
from fifo.client import NotAcked, Opened
from fifo.spark import batches, columns, limits
from fifo.spark.ahead import ahead
from fifo.spark.errors import SourceError, telling
from fifo.spark.options import Settings

_log = logging.getLogger("fifo.spark")

_T = TypeVar("_T")

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Tokens first..last, ascending."""

_ANY: Final = Opened(0, 1)
"""The latest opening, whichever it is: the broker's refusal names the generation."""


class Acked(NamedTuple):
    """The outcome of `ack`: settled messages, and those whose lock had expired before.

    Lost messages are redelivered, to any consumer.
    """

    messages: int
    lost: int


def ack(url: str, queue: str, reservation: str) -> Acked:
    """Ack all that the reservation holds; call it when the action on what was read has succeeded.

    Raises SourceError where there is no such reservation.
    """
    with _joined(url, queue, reservation) as durable:
        held = durable.open()
        lost = durable.ack(durable.next_token - 1)
        return Acked(count(held), _tokens(lost))


def renew(url: str, queue: str, reservation: str) -> None:
    """Lock all that the reservation holds anew, from now on: between a long action and its ack."""
    with _joined(url, queue, reservation) as durable:
        durable.renew()


def release(url: str, queue: str, reservation: str) -> None:
    """End the reservation: what it holds goes back to the queue, uncounted."""
    with _joined(url, queue, reservation) as durable:
        durable.forget()


@contextmanager
def _joined(url: str, queue: str, reservation: str) -> Iterator[BlockingDurable]:
    """A reservation that exists, in its present generation."""
    with (
        telling(f"queue {queue!r}, reservation {reservation!r}"),
        fifo.blocking.connect(url) as client,
    ):
        yield Follower(client, queue, reservation, _ANY).find()


class Part(InputPartition):
    """The tokens of a reservation that one task fetches, as opened when this was planned."""

    def __init__(self, ranges: Ranges, opened: Opened) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.opened = opened


class Follower:
    """A reservation that others may open again meanwhile: only the newest generation is served,
    and this one takes over its number from the refusal.
    """

    def __init__(self, client: BlockingClient, queue: str, name: str, opened: Opened) -> None:
        self._client = client
        self._queue = queue
        self._name = name
        self._consumer = opened.consumer
        self._durable = self._as_opened(opened.generation)

    def _as_opened(self, generation: int) -> BlockingDurable:
        opened = Opened(self._consumer, generation)
        return self._client.durable(self._queue, self._name, opened=opened)

    @property
    def opened(self) -> Opened:
        """The generation that was served last."""
        return self._durable.opened

    def find(self) -> BlockingDurable:
        """The reservation in its present generation; raises LockLost where there is none."""
        try:
            self._durable.ack(0)
        except fifo.SessionTaken as error:
            self._adopt(error)
        return self._durable

    def fetch_part(self, first: int, last: int, max_bytes: int) -> fifo.Fetched:
        """As `durable.fetch_part`."""
        return self._following(lambda: self._durable.fetch_part(first, last, max_bytes))

    def settle(self, verb: str, tokens: Sequence[int], **more: Any) -> tuple[fifo.Verdict, ...]:
        """As `durable.settle`."""
        return self._following(lambda: self._durable.settle(verb, tokens, **more))

    def renew(self) -> None:
        """As `durable.renew`."""
        self._following(lambda: self._durable.renew())

    def ack(self, upto: int) -> int:
        """As `durable.ack`; how many had been lost before."""
        return _tokens(self._following(lambda: self._durable.ack(upto)))

    def forget(self) -> None:
        """As `durable.forget`."""
        self._following(lambda: self._durable.forget())

    def _following(self, verb: Callable[[], _T]) -> _T:
        """Each refusal names a later generation: every action of Spark opens the name anew."""
        while True:
            try:
                return verb()
            except fifo.SessionTaken as error:
                self._adopt(error)

    def _adopt(self, error: fifo.SessionTaken) -> None:
        generation = error.detail.get("generation") if isinstance(error.detail, dict) else None
        if not isinstance(generation, int):
            raise error
        self._durable = self._as_opened(generation)


class Reservation:
    """The driver's side: opens the name, which takes it over, and knows what it holds."""

    def __init__(self, client: BlockingClient, settings: Settings) -> None:
        assert settings.reservation is not None, "checked with the options"
        self.lock_s = settings.lock_s or limits.LOCK_S
        self._durable = client.durable(
            settings.queue,
            settings.reservation,
            lock=self.lock_s,
            max_lock=settings.max_lock_s or max(self.lock_s, limits.MAX_LOCK_S),
        )
        self._held: Ranges = ()
        self._lost: Ranges = ()
        self._next = 1
        self.open()

    def open(self) -> None:
        """Take the name over, and learn what is held, which is locked anew: who comes back before
        the locks have run out keeps all of it.
        """
        self._held = tuple(self._durable.open())
        self._lost = self._durable.lost
        self._next = self._durable.next_token
        self.renew()

    @property
    def opened(self) -> Opened:
        """For the tasks."""
        return self._durable.opened

    @property
    def last(self) -> int:
        """The last token that was given out."""
        return self._next - 1

    @property
    def oldest(self) -> int:
        """The first token that is held; the next one where nothing is."""
        return self._held[0][0] if self._held else self._next

    def held(self, after: int, upto: int) -> Ranges:
        """The held ranges of tokens after+1..upto, as far as this side knows."""
        return _cut(self._held, after, upto)

    def lost(self, after: int, upto: int) -> Ranges:
        """The ranges of tokens after+1..upto that were lost when this one opened it."""
        return _cut(self._lost, after, upto)

    def take(self, most: int, max_bytes: int | None = None) -> int:
        """Lock up to `most` more messages; how many. Fewer: no more are ready, or can be held, or
        the last one's body makes it `max_bytes`.

        Where an answer was lost it looks at what is held, so that nothing is locked twice.
        """
        taken = 0
        while taken < most and max_bytes != 0:
            wanted = min(most - taken, limits.STEP_MESSAGES)
            before = self._next
            try:
                tokens, left_bytes = self._durable.hold(wanted, max_bytes)
            except fifo.FifoError as error:
                if not error.unknown:
                    raise
                self.open()
            else:
                max_bytes = None if max_bytes is None else left_bytes
                if tokens:
                    self._held += ((tokens[0], tokens[-1]),)
                self._next = max(self._next, tokens.stop)
            taken += self._next - before
            if self._next == before:
                break
        return taken

    def ack(self, upto: int) -> int:
        """Settle all up to this token; how many had been lost before."""
        lost = self._durable.ack(upto)
        self._held = self.held(upto, self.last)
        return _tokens(lost)

    def renew(self) -> None:
        """Lock all anew; nothing where nothing is held."""
        if self._held:
            self._durable.renew()


class Keeper:
    """Renews from a thread, at once and while entered. A lost renewal is tried again in time."""

    def __init__(self, holder: Reservation | Follower, lock_s: float) -> None:
        self._holder = holder
        self._lock_s = lock_s
        self._period_s = lock_s / limits.RENEWALS_PER_LOCK
        self._renewed_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fifo reservation", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End without waiting: a renewal under way does no harm."""
        self._ended.set()

    def left_s(self) -> float:
        """The seconds that the locks last without another renewal, `maxLock` aside."""
        return max(self._renewed_at + self._lock_s - time.monotonic(), 0.0)

    def __enter__(self) -> Keeper:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._ended.is_set():
            asked_at = time.monotonic()
            try:
                self._holder.renew()
                self._renewed_at = asked_at
            except (fifo.SessionTaken, fifo.LockLost, fifo.ClientClosed) as error:
                if not self._ended.is_set():
                    _log.warning("renewal of the reservation has stopped: %s", error)
                return
            except fifo.FifoError as error:
                _log.warning("a renewal failed: %s", error)
            self._ended.wait(self._period_s)


def fetched(
    settings: Settings, part: Part, *, follow: bool, remedy: str | None
) -> Iterator[pa.RecordBatch]:
    """A task's rows, the same each time; raises where some are no longer held, with this remedy.

    None: goes on without them. `follow`: go on where the name was opened again meanwhile; else that
    is refused.
    """
    name = settings.reservation or ""
    with (
        telling(f"{settings.where()}, reservation {name!r}"),
        fifo.blocking.connect(settings.url) as client,
    ):
        holder: Follower | BlockingDurable = (
            Follower(client, settings.queue, name, part.opened)
            if follow
            else client.durable(settings.queue, name, opened=part.opened)
        )
        schema = columns.arrow_schema(binary_keys=settings.binary_keys, names=settings.columns)
        for found in ahead(_answers(holder, part.ranges)):
            if remedy is not None and found.lost:
                raise gone(settings, count(found.lost), count(part.ranges), remedy)
            yield from batches.to_batches(found.messages, schema, consumer=part.opened.consumer)


def _answers(holder: Follower | BlockingDurable, ranges: Ranges) -> Iterator[fifo.Fetched]:
    for first, last in _steps(ranges):
        begin = first
        while begin:
            found = holder.fetch_part(begin, last, limits.BATCH_BYTES)
            yield found
            begin = found.rest


def gone(settings: Settings, missing: int, promised: int, remedy: str) -> SourceError:
    """The error for messages that the reservation has lost."""
    return SourceError(
        f"{settings.where()}, reservation {settings.reservation!r}: {missing} of {promised}"
        " messages are no longer held: their lock expired without a renewal (then they are"
        f" redelivered, to any consumer), or the queue was deleted; {remedy}"
    )


def _cut(ranges: Ranges, after: int, upto: int) -> Ranges:
    """The part of these ranges in after+1..upto."""
    cut = [(max(first, after + 1), min(last, upto)) for first, last in ranges]
    return tuple((first, last) for first, last in cut if first <= last)


def _tokens(lost: Sequence[NotAcked]) -> int:
    return count([(one.first, one.last) for one in lost])


def count(ranges: Sequence[tuple[int, int]]) -> int:
    """Tokens in these ranges."""
    return sum(last - first + 1 for first, last in ranges)


def split(ranges: Ranges, parts: int) -> list[Ranges]:
    """The same tokens in at most so many parts of nearly the same size, in order, none empty."""
    total = count(ranges)
    edges = sorted({total * part // parts for part in range(1, parts + 1)} - {0})
    found: list[Ranges] = []
    rest, passed = list(ranges), 0
    for edge in edges:
        part: list[tuple[int, int]] = []
        while passed < edge:
            first, last = rest.pop(0)
            cut = min(last, first + edge - passed - 1)
            part.append((first, cut))
            passed += cut - first + 1
            if cut < last:
                rest.insert(0, (cut + 1, last))
        found.append(tuple(part))
    return found


def _steps(ranges: Ranges) -> Iterator[tuple[int, int]]:
    for first, last in ranges:
        for begin in range(first, last + 1, limits.FETCH_MESSAGES):
            yield begin, min(last, begin + limits.FETCH_MESSAGES - 1)
