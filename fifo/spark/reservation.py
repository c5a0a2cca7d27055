"""Messages kept under a name: the durable consumers behind streams and `ackMode=manual`.

Owns how many they are, taking more, splitting what is held into tasks, reading it in a task,
keeping its locks, and the functions that users call between reads. What one consumer does is the
business of `holding`; when a batch ends, of `streaming`; which mode a read is in, of `reading`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, Unpack

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import fifo
from fifo.blocking import BlockingClient, BlockingDurable
from fifo.client import Opened
from fifo.spark import batches, columns, limits
from fifo.spark.ahead import ahead
from fifo.spark.errors import SourceError, telling
from fifo.spark.holding import ANY, Follower, Holder, Ranges, count, tokens_of
from fifo.spark.options import Login, Settings, with_login

_log = logging.getLogger("fifo.spark")

Position: TypeAlias = tuple[int, ...]
"""The last token of each consumer up to a moment; 0 for those that are not in it."""

Places: TypeAlias = Ranges
"""Ranges of places, each within one consumer (`place_of`)."""


class Acked(NamedTuple):
    """The outcome of `ack`: settled messages, and those whose lock had expired before.

    Lost messages are redelivered, to any consumer.
    """

    messages: int
    lost: int


def ack(url: str, queue: str, reservation: str, **login: Unpack[Login]) -> Acked:
    """Ack all that the reservation holds; call it when the action on what was read has succeeded.

    `login`, here and below: options of the connection, such as `tokenFile` and `ca`.
    Raises SourceError where there is no such reservation.
    """
    messages = lost = 0
    with _joined(url, queue, reservation, login) as found:
        for durable in found:
            messages += count(durable.open())
            lost += tokens_of(durable.ack(durable.next_token - 1))
    return Acked(messages, lost)


def renew(url: str, queue: str, reservation: str, **login: Unpack[Login]) -> None:
    """Lock all that the reservation holds anew, from now on: between a long action and its ack."""
    with _joined(url, queue, reservation, login) as found:
        for durable in found:
            durable.renew()


def release(url: str, queue: str, reservation: str, **login: Unpack[Login]) -> None:
    """End the reservation: what it holds goes back to the queue, uncounted."""
    with _joined(url, queue, reservation, login) as found:
        for durable in reversed(found):
            durable.forget()


@contextmanager
def _joined(
    url: str, queue: str, reservation: str, login: Login
) -> Iterator[list[BlockingDurable]]:
    """The consumers of a reservation that exists, in their present generations."""
    with (
        telling(f"queue {queue!r}, reservation {reservation!r}"),
        fifo.blocking.connect(with_login(url, login)) as client,
    ):
        first = Follower(client, queue, reservation, ANY).find()
        names = others(client, queue, reservation, 1)
        yield [first, *(Follower(client, queue, name, ANY).find() for name in names)]


class Part(InputPartition):
    """The places of a reservation that one task fetches, as opened when this was planned."""

    def __init__(self, ranges: Places, opened: tuple[Opened, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.opened = opened


class Reservation:
    """The driver's side: its durable consumers, as many as it takes to hold `most` messages, and
    those that an earlier driver had opened.

    Messages lie in the order of the queue: in that of the consumers, and of the tokens of each.
    """

    def __init__(
        self, client: BlockingClient, settings: Settings, most: int = limits.HELD_MAX
    ) -> None:
        assert settings.reservation is not None, "checked with the options"
        self.lock_s = settings.lock_s or limits.LOCK_S
        count_wanted = -(-most // limits.HELD_MAX)
        names = [holder_name(settings.reservation, index) for index in range(count_wanted)]
        names += others(client, settings.queue, settings.reservation, count_wanted)
        self._holders = [Holder(client, settings, name) for name in names]

    @property
    def opened(self) -> tuple[Opened, ...]:
        """For the tasks."""
        return tuple(holder.opened for holder in self._holders)

    @property
    def last(self) -> Position:
        """The last tokens that were given out."""
        return tuple(holder.last for holder in self._holders)

    @property
    def begin(self) -> Position:
        """Before all that is held."""
        return tuple(holder.oldest - 1 for holder in self._holders)

    def held(self, after: Position, upto: Position) -> Places:
        """The held places between these positions, as far as this side knows."""
        found = [holder.held(*part) for holder, part in self._between(after, upto)]
        return _places(found)

    def lost(self, after: Position, upto: Position) -> Places:
        """The places between these positions that were lost when this one opened it."""
        found = [holder.lost(*part) for holder, part in self._between(after, upto)]
        return _places(found)

    def _between(self, after: Position, upto: Position) -> Iterator[tuple[Holder, tuple[int, int]]]:
        for index, holder in enumerate(self._holders):
            yield holder, (token_at(after, index), token_at(upto, index))

    def take(self, most: int, max_bytes: int | None = None) -> int:
        """Lock up to `most` more messages; how many. Fewer: no more are ready, or can be held, or
        the last one's body makes it `max_bytes`."""
        taken = 0
        for holder in self._holders:
            wanted = min(most - taken, holder.room)
            found, max_bytes = holder.take(wanted, max_bytes)
            taken += found
            if found < wanted or taken == most:
                break
        return taken

    def ack(self, upto: Position) -> int:
        """Settle all up to this position; how many had been lost before."""
        return sum(holder.ack(token_at(upto, index)) for index, holder in enumerate(self._holders))

    def renew(self) -> None:
        """Lock all anew."""
        for holder in self._holders:
            holder.renew()


class Followers:
    """A reservation that others may open again meanwhile, by each of its consumers."""

    def __init__(
        self, client: BlockingClient, queue: str, name: str, opened: Sequence[Opened]
    ) -> None:
        self._each = [
            Follower(client, queue, holder_name(name, index), one)
            for index, one in enumerate(opened)
        ]

    def renew(self) -> None:
        """Lock all anew."""
        for one in self._each:
            one.renew()

    def ack(self, upto: Position) -> int:
        """Settle all up to this position; how many had been lost before."""
        return sum(one.ack(token_at(upto, index)) for index, one in enumerate(self._each))

    def forget(self) -> None:
        """Give all back; the first one last, by which the others are found."""
        for one in reversed(self._each):
            one.forget()


def holder_name(name: str, index: int) -> str:
    """The name of a durable consumer of a reservation: the first one has the reservation's."""
    return f"{name}/{index + 1}" if index else name


def others(client: BlockingClient, queue: str, name: str, first: int) -> list[str]:
    """The names from this one on under which the reservation has consumers already."""
    found: list[str] = []
    for index in range(first, limits.HOLDERS_MAX):
        one = holder_name(name, index)
        try:
            Follower(client, queue, one, ANY).find()
        except fifo.LockLost:
            break
        found.append(one)
    return found


def place_of(index: int, token: int) -> int:
    """A token of one of the consumers as a number: places are in the order of the messages."""
    return index << limits.TOKEN_BITS | token


def holder_of(place: int) -> tuple[int, int]:
    """The consumer of a place, and its token."""
    return place >> limits.TOKEN_BITS, place % (1 << limits.TOKEN_BITS)


def token_at(position: Position, index: int) -> int:
    """The token of a position at one of the consumers; 0 where it was not known yet."""
    return position[index] if index < len(position) else 0


def behind(position: Position, places: Places) -> Position:
    """The position behind all of these places, which lie behind this one."""
    found = list(position)
    for _, last in places:
        index, token = holder_of(last)
        found += [0] * (index + 1 - len(found))
        found[index] = max(found[index], token)
    return tuple(found)


def _places(found: Sequence[Ranges]) -> Places:
    return tuple(
        (place_of(index, first), place_of(index, last))
        for index, ranges in enumerate(found)
        for first, last in ranges
    )


class Keeper:
    """Renews from a thread, at once and while entered. A lost renewal is tried again in time."""

    def __init__(self, holder: Reservation | Followers, lock_s: float) -> None:
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
    with (
        telling(f"{settings.where()}, reservation {settings.reservation!r}"),
        fifo.blocking.connect(settings.url) as client,
    ):
        schema = columns.arrow_schema(binary_keys=settings.binary_keys, names=settings.columns)
        for consumer, found in ahead(_answers(client, settings, part, follow=follow)):
            if remedy is not None and found.lost:
                raise gone(settings, count(found.lost), count(part.ranges), remedy)
            yield from batches.to_batches(found.messages, schema, consumer=consumer)


def _answers(
    client: BlockingClient, settings: Settings, part: Part, *, follow: bool
) -> Iterator[tuple[int, fifo.Fetched]]:
    """Fetch each range; the answers come with the number of the consumer."""
    holders: dict[int, Follower | BlockingDurable] = {}
    bodies = columns.want_bodies(settings.columns)
    for first_place, last_place in _steps(part.ranges):
        index, first = holder_of(first_place)
        last = holder_of(last_place)[1]
        opened = part.opened[index]
        if index not in holders:
            name = holder_name(settings.reservation or "", index)
            holders[index] = (
                Follower(client, settings.queue, name, opened)
                if follow
                else client.durable(settings.queue, name, opened=opened)
            )
        while first:
            found = holders[index].fetch_part(first, last, limits.BATCH_BYTES, bodies=bodies)
            yield opened.consumer, found
            first = found.rest


def gone(settings: Settings, missing: int, promised: int, remedy: str) -> SourceError:
    """The error for messages that the reservation has lost."""
    return SourceError(
        f"{settings.where()}, reservation {settings.reservation!r}: {missing} of {promised}"
        " messages are no longer held: their lock expired without a renewal (then they are"
        f" redelivered, to any consumer), or the queue was deleted; {remedy}"
    )


def split(ranges: Places, parts: int) -> list[Places]:
    """The same places in at most so many parts of nearly the same size, in order, none empty."""
    total = count(ranges)
    edges = sorted({total * part // parts for part in range(1, parts + 1)} - {0})
    found: list[Places] = []
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


def _steps(ranges: Places) -> Iterator[tuple[int, int]]:
    for first, last in ranges:
        for begin in range(first, last + 1, limits.FETCH_MESSAGES):
            yield begin, min(last, begin + limits.FETCH_MESSAGES - 1)
