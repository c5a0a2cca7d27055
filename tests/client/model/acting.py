"""A program of the model: a client, and every call that it makes, with how each one ends.

Owns the coroutines. Each hands what the program hears to `promises` at once. Must
not know which calls are made when: `actions` chooses.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import warnings
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import fifo
from fifo import blocking
from fifo.client.connection.environment import Environment
from fifo.client.connection.threads import SameLoop
from fifo.client.consuming.consumer import Consumer
from fifo.words.settlement import Verb
from node.testing.clockwork import Program
from tests.client.model.heard import Asking, Body, Letter, Publishing, Verdict
from tests.client.model.sending import WINDOW_BYTES, Sending
from tests.client.model.waiting import Awaited, Handled, called, callers
from tests.sim.workload import RATE_ERROR

if TYPE_CHECKING:
    from tests.client.model.playing import Scene

T = TypeVar("T")

TIMEOUT_S = 2.0
"""Of every call: one election fits in, two do not, so that some calls end unknown."""

HEARTBEAT_S = 2.0

GET_LOCK_S = 2.0
"""Lock of the messages of a get."""

LATE_S = 0.05
"""Time that a call may take beyond its limit: a few turns of the loop."""

COMMON: fifo.ConnectKeywords = {"timeout": TIMEOUT_S, "heartbeat": HEARTBEAT_S}

KINDS: tuple[fifo.ConnectKeywords, ...] = (
    {},
    {"max_ack_retries": 1, "ack_retry_backoff": "fixed:100ms"},
    {"auto_retry_acks": False},
)
"""Options of programs: settlements are sent again for ever, once, or never."""


class Actor:
    """A client program on a machine of its own. `session`: one that it takes from another."""

    def __init__(self, scene: Scene, name: str, number: int, session: bytes | None = None) -> None:
        self.scene = scene
        self.name = name
        self.kind = KINDS[number % len(KINDS)]
        self.blocks = scene.blocking and number % 2 == 1
        self.rng = random.Random(f"{scene.world.plan.seed} {name}")
        self.program = Program(
            scene.world.loop, name, name,
            rate=self.rng.uniform(0.98, 1.02), offset=self.rng.uniform(0.0, 1e5),
        )  # fmt: skip
        scene.world.programs[name] = self.program
        self.client: fifo.Client | None = None
        self.consumers: list[Consumer[fifo.Message]] = []
        self.asking: weakref.WeakKeyDictionary[Consumer[fifo.Message], int] = (
            weakref.WeakKeyDictionary()
        )
        """Tasks that wait for a message of a consumer."""
        self.letters: list[Letter] = []
        self.publishings: list[Publishing] = []
        self.connections = 0
        """Of `on_connected` and `on_disconnected`: each has the other between two of it."""
        self.closed = False
        self.drains = False
        """Whether it takes and acks all that comes, for the end of a run."""
        self._session = session
        self._sending = Sending(self)
        self._numbers = itertools.count(1)
        self.run(self._connect())

    def __repr__(self) -> str:
        return self.name

    # --- life -------------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether the program runs, or will run on."""
        return self.program.alive and not self.closed

    @property
    def is_up(self) -> bool:
        """Whether it can make a call."""
        return self.is_alive and self.client is not None and self.client._session.fatal is None

    @property
    def is_connected(self) -> bool:
        """Whether its client knows a leader."""
        return self.is_up and self.client is not None and self.client.connected

    @property
    def session_id(self) -> bytes:
        """The session that it has now."""
        return b"" if self.client is None else self.client._session.identity.session

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Make a call beside the others."""
        self.program.run(work)

    async def _connect(self) -> None:
        randbytes = self.rng.randbytes
        sessions = iter([self._session] if self._session is not None else [])
        environment = Environment(
            monotonic=self.program.clock,
            wall=self.program.wall,
            chance=self.rng.random,
            entropy=lambda count: next(sessions, None) or randbytes(count),
            own_loop=SameLoop,
            crossing=lambda: callers(self.scene.world.loop),
            dial=self._sending.dial,
        )
        options = cast("fifo.ConnectKeywords", {**COMMON, **self.kind})
        while self.client is None:
            try:
                self.client = await self._connected_with(environment, options)
            except fifo.FifoError:
                await asyncio.sleep(0.3)
        session = self.client._session
        session.options = replace(session.options, window_bytes=WINDOW_BYTES)
        self.client.on_unsettled = self._unsettled
        self.connections = 1
        self.client.on_connected = self._connected
        self.client.on_disconnected = self._disconnected

    async def _connected_with(
        self, environment: Environment, options: fifo.ConnectKeywords
    ) -> fifo.Client:
        url = self.scene.world.url
        if not self.blocks:
            return await fifo.connect(url, environment=environment, **options)
        connect = partial(blocking.connect, url, environment=environment, **options)
        return cast("fifo.Client", Awaited(await called(connect)))

    async def made(self, found: Any) -> Any:
        """Return what a quick call made: of the blocking client it is a call like the others."""
        return await found if self.blocks else found

    async def with_message(self, call: Callable[[], Any]) -> Any:
        """Make a call of a message."""
        return await (called(call) if self.blocks else call())

    def _connected(self, _address: str) -> None:
        self.connections += 1
        self.scene.promises.holds(
            "connections come and go in turn", self.connections == 1, f"{self} connected twice"
        )

    def _disconnected(self, error: fifo.FifoError) -> None:
        self.connections -= 1
        self.scene.promises.holds(
            "connections come and go in turn", self.connections == 0, f"{self}: {error!r} twice"
        )

    def _unsettled(self, message: Any, error: fifo.FifoError) -> None:
        for letter in self.letters:
            if letter.message is message:
                self.scene.log(f"{self} hears {error!r}")
                letter.unsettled.append(error)
                self.scene.promises.unsettled(letter, error)

    def up(self) -> fifo.Client:
        """Its client."""
        assert self.client is not None, "asked for by a program that is connected"
        return self.client

    async def timed(self, what: str, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Make a call: it ends within its time."""
        scene, program = self.scene, self.program
        number = next(scene.numbers)
        scene.heard.open_calls[number] = f"{self} {what}"
        began, paused = scene.world.loop.now, program.paused_seconds
        try:
            return await work
        finally:
            if program.alive and not scene.world.loop.over:
                del scene.heard.open_calls[number]
                took = scene.world.loop.now - began - (program.paused_seconds - paused)
                limit = limit_s * (1 + RATE_ERROR) + LATE_S
                scene.promises.holds("ends in time", took <= limit, f"{self} {what}: {took:.3f} s")

    async def close(self) -> None:
        """Leave in order."""
        await self.timed("close", self.up().close(), 12.0)
        self.closed = True

    # --- queues -----------------------------------------------------------------------------------

    async def declare(self, spec: fifo.QueueSpec) -> None:
        """Declare a queue."""
        began = self.scene.now
        call = self.up().declare(spec)
        try:
            created = await self.timed(f"declare {spec.name}", call, TIMEOUT_S)
        except fifo.FifoError as error:
            self.scene.log(f"{self} declares {spec.name}: {error!r}")
            return
        self.scene.log(f"{self} declares {spec.name}: {created}")
        self.scene.promises.declared(spec.name, began, created=created)

    async def delete(self, queue: str) -> None:
        """Delete a queue."""
        began = self.scene.now
        try:
            await self.timed(f"delete {queue}", self.up().delete(queue), TIMEOUT_S)
        except fifo.FifoError as error:
            self.scene.log(f"{self} deletes {queue}: {error!r}")
            if isinstance(error, fifo.QueueNotFound):
                self.scene.promises.missed(queue, began, error)
            return
        self.scene.log(f"{self} deletes {queue}")
        self.scene.promises.deleted(queue, began)

    async def purge(self, queue: str) -> None:
        """Purge a queue."""
        began = self.scene.now
        try:
            await self.timed(f"purge {queue}", self.up().purge(queue), TIMEOUT_S)
        except fifo.FifoError as error:
            self.scene.log(f"{self} purges {queue}: {error!r}")
            return
        self.scene.log(f"{self} purges {queue}")
        self.scene.promises.purged(queue, began)

    # --- publishing -------------------------------------------------------------------------------

    async def publish(self, queue: str, dedup: str | None, size: int = 0) -> None:
        """Publish one message, of at least so many bytes."""
        one = self._publishing(queue, dedup, size=size)
        call = self.up().publish(queue, one.body, dedup_id=dedup)
        try:
            one.confirm = await self.timed(f"publish {one.body!r}", call, TIMEOUT_S)
        except fifo.FifoError as error:
            one.error = error
        self._published(one)

    async def publish_many(self, queue: str, count: int) -> None:
        """Publish a list."""
        all_of_it = [self._publishing(queue, None) for _ in range(count)]
        bodies = [one.body for one in all_of_it]
        error: fifo.FifoError | None = None
        confirms: Any = ()
        try:
            call = self.up().publish_many(queue, bodies)
            confirms = await self.timed(f"publish {bodies}", call, TIMEOUT_S)
        except fifo.FifoError as failed:
            error = failed
            confirms = getattr(failed, "confirms", ())
            at = getattr(failed, "index", 0)
            self.scene.promises.holds(
                "a list says how far it came", at == len(confirms), f"{bodies}: {failed!r}, {at}"
            )
        for place, one in enumerate(all_of_it):
            if place < len(confirms):
                one.confirm = confirms[place]
            else:
                one.error = error
            self._published(one)

    async def publish_numbered(self, name: str, queue: str, number: int) -> None:
        """Publish the message of a named producer that has this number, maybe again."""
        one = self._publishing(queue, None, number=number)
        try:
            producer = await self.timed("open", self.up().open_producer(name), TIMEOUT_S)
            call = producer.publish(queue, one.body, number=number)
            one.confirm = await self.timed(f"publish {one.body!r}", call, TIMEOUT_S)
        except fifo.FifoError as error:
            one.error = error
        self._published(one)

    def _publishing(
        self, queue: str, dedup: str | None, number: int | None = None, size: int = 0
    ) -> Publishing:
        body = Body(f"{self.name}-{next(self._numbers)} ".encode().ljust(size, b"x"))
        one = Publishing(self, queue, body, self.scene.now, dedup, number)
        self.publishings.append(one)
        self.scene.heard.publishings.append(one)
        return one

    def _published(self, one: Publishing) -> None:
        one.ended = self.scene.now
        if one.confirm is not None:
            one.verdict = Verdict.OK
        elif one.error is not None:
            one.verdict = Verdict.UNKNOWN if one.error.unknown else Verdict.NO
        self.scene.log(
            f"{self} published {one.body!r} to {one.queue}: {one.confirm or one.error!r}"
        )
        self.scene.promises.published(one)

    # --- consuming --------------------------------------------------------------------------------

    async def consume(
        self, queue: str, tag: str | None, prefetch: int | Literal["auto"], lock_s: float
    ) -> None:
        """Subscribe."""
        began = self.scene.now
        options: fifo.ConsumerKeywords = {"prefetch": prefetch, "lock": lock_s}
        if tag is not None:
            options["tag"] = tag
        consumer = await self.made(self.up().consume(queue, **options))
        tags = [one.tag for one in self.consumers if one.queue == queue and not one.cancelled]
        self.scene.promises.holds(
            "tags differ", consumer.tag not in tags, f"{consumer.tag}: {tags}"
        )
        self.consumers.append(consumer)
        try:
            await self.timed(f"subscribe to {queue}", consumer.subscribe(), TIMEOUT_S)
        except fifo.FifoError as error:
            self.scene.log(f"{self} consumes {queue}: {error!r}")
            if isinstance(error, fifo.QueueNotFound):
                self.scene.promises.missed(queue, began, error)
            await self.cancel(consumer)
            return
        self.scene.log(f"{self} consumes {queue} as {consumer.number}, {consumer.tag}")

    async def take(self, consumer: Consumer[fifo.Message], wait_s: float) -> None:
        """Ask a consumer for the next message."""
        began = self.scene.now
        self.asking[consumer] = self.asking.get(consumer, 0) + 1
        try:
            limit_s = wait_s + TIMEOUT_S  # it may have to subscribe first
            message = await self.timed("next", consumer.next(timeout=wait_s), limit_s)
        except fifo.FifoError as error:
            self.scene.log(f"{self} asks {consumer.number}: {error!r}")
            if isinstance(error, fifo.QueueNotFound):
                # It may have been deleted long before: the first to ask hears it.
                self.scene.promises.missed(consumer.queue, 0.0, error)
            return
        finally:
            self.asking[consumer] -= 1
        if message is not None:
            self.received(message)
            return
        waited = self.scene.now - began >= wait_s * (1 - RATE_ERROR) - LATE_S
        self.scene.promises.holds(
            "nothing comes after the wait", waited or consumer.cancelled, f"{self} {consumer}"
        )

    async def get(self, queue: str, count: int, wait_s: float, *, renew: bool) -> None:
        """Get a few messages."""
        began = self.scene.now
        call = self.up().get(queue, count, wait_s, lock=GET_LOCK_S, auto_renew=renew)
        try:
            messages = await self.timed(f"get from {queue}", call, TIMEOUT_S + wait_s)
        except fifo.FifoError as error:
            self.scene.log(f"{self} gets from {queue}: {error!r}")
            if isinstance(error, fifo.QueueNotFound):
                self.scene.promises.missed(queue, began, error)
            return
        few = len(messages) <= count
        self.scene.promises.holds("no more than was asked for", few, f"{messages}")
        for message in messages:
            self.received(message, renews=renew)

    async def give_up(self, queue: str, count: int, after_s: float) -> None:
        """Get a few messages, and wait no longer than this for the call."""
        try:
            async with asyncio.timeout(after_s):
                await self.get(queue, count, TIMEOUT_S, renew=True)
        except TimeoutError:
            self.scene.log(f"{self} gives up what it gets from {queue}")

    def received(self, message: fifo.Message, *, renews: bool = True) -> None:
        """The program has this in hand."""
        lock = (message.consumer, message.token)
        handed = self.scene.truth.handed.get(lock)
        lock_s = 0.0 if handed is None else handed.lock_s
        transit_s = self.program.transits.get(message._delivery.received, LATE_S)
        slack_s = transit_s + RATE_ERROR * lock_s
        letter = Letter(self, message, lock, slack_s, self.scene.now, renews=renews)
        self.scene.log(f"{self} has {message.id} by {lock}")
        self.letters.append(letter)
        self.scene.heard.letters.append(letter)
        self.scene.promises.received(letter)

    async def cancel(self, consumer: Consumer[fifo.Message]) -> None:
        """Leave a consumer."""
        await self.timed("cancel", consumer.cancel(), 2 * TIMEOUT_S)

    async def drain(self, consumer: Consumer[fifo.Message]) -> None:
        """Take and ack whatever comes."""
        while self.drains and not consumer.cancelled:
            before = len(self.letters)
            await self.take(consumer, 0.5)
            for letter in self.letters[before:]:
                if not letter.asked:
                    await self.settle(letter, Verb.ACK, None, wait=True)

    async def settle_all(self) -> None:
        """Ack all that is still in hand."""
        for letter in list(self.letters):
            if not letter.message.settled and not letter.message.is_lost:
                await self.settle(letter, Verb.ACK, None, wait=True)

    async def let_go(self, consumer: Consumer[fifo.Message]) -> None:
        """Drop a consumer without leaving it: the client does."""
        self.consumers.remove(consumer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del consumer

    # --- durable consumers ------------------------------------------------------------------------

    async def reserve(self, queue: str, count: int) -> None:
        """Reserve under a name that all programs share, fetch the same again, and ack it."""
        durable = await self.made(self.up().durable(queue, "shared", lock=2.0))
        promises, truth = self.scene.promises, self.scene.truth
        began = self.scene.now
        try:
            got = await self.timed("reserve", durable.reserve(count), 2 * TIMEOUT_S)
            for one in got:
                handed = truth.handed.get((durable.consumer, one.token))
                same = handed is not None and handed.id == one.id
                same = same and truth.bodies.get(one.id) == one.body
                promises.holds("reserved was handed out", same, f"{self} {one}: {handed}")
            if not got:
                return
            first, last = got[0].token, got[-1].token
            again = await self.timed("fetch", durable.fetch(first, last), 2 * TIMEOUT_S)
            known = {one.token: one.id for one in got}
            same = all(known[one.token] == one.id for one in again)
            promises.holds("fetched is what was reserved", same, f"{self}: {got}, {again}")
            missed = await self.timed("ack", durable.ack(last), 3 * TIMEOUT_S)
        except fifo.FifoError as error:
            self.scene.log(f"{self} reserves of {queue}: {error!r}")
            if isinstance(error, fifo.QueueNotFound):
                promises.missed(queue, began, error)
            return
        self.scene.log(f"{self} reserved and acked {got}, but for {missed}")
        promises.acked([one for one in got if not any(a <= one.token <= b for a, b, _ in missed)])

    # --- settling ---------------------------------------------------------------------------------

    async def settle(
        self, letter: Letter, verb: Verb, delay_s: float | None, *, wait: bool
    ) -> None:
        """Settle a message, for the first time or again; `wait`: for its receipt."""
        one = Asking(letter, verb)
        letter.asked.append(one)
        message = letter.message
        calls: dict[Verb, Callable[[], Any]] = {
            Verb.ACK: lambda: message.ack(receipt=wait),
            Verb.NACK: lambda: message.nack(delay_s, receipt=wait),
            Verb.RELEASE: lambda: message.release(delay_s, receipt=wait),
            Verb.TERMINATE: lambda: message.terminate("never", receipt=wait),
        }
        if not wait:
            one.verdict = Verdict.SENT  # an event may come before the call returns
        try:
            what = f"{verb.name} of {letter}"
            one.result = await self.timed(what, self.with_message(calls[verb]), TIMEOUT_S)
        except fifo.FifoError as error:
            one.error = error
        self._asked(one, wait=wait)

    async def settle_elsewhere(self, letter: Letter, verb: Verb) -> None:
        """Settle a message that another program holds."""
        one = Asking(letter, verb, is_elsewhere=True)
        letter.asked.append(one)
        message, name = letter.message, verb.name.lower()
        consumer, token = letter.lock
        call = self.up().settle(message.queue, consumer, token, name, handle=message.handle)
        try:
            # It asks for the consumer first: two calls.
            one.result = await self.timed(f"{name} of {letter} elsewhere", call, 2 * TIMEOUT_S)
        except fifo.FifoError as error:
            one.error = error
        self._asked(one, wait=True)

    def _asked(self, one: Asking, *, wait: bool) -> None:
        if one.error is not None:
            one.verdict = Verdict.UNKNOWN if one.error.unknown else Verdict.NO
        elif one.result is not None:
            status = one.result.status
            is_sent = status is fifo.Status.SENT
            self.scene.promises.holds("a receipt is no guess", not (wait and is_sent), f"{one}")
            is_ok = status not in (fifo.Status.LOCK_LOST, fifo.Status.UNKNOWN_CONSUMER)
            one.verdict = Verdict.SENT if is_sent else Verdict.OK if is_ok else Verdict.NO
        what = f"{one.verb.name} {one.letter}: {one.result or one.error!r}"
        self.scene.log(f"{self} {what}")
        if not (one.result is not None and one.result.status is fifo.Status.SENT):
            self.scene.promises.settled(one)

    async def renew(self, letter: Letter) -> None:
        """Renew a lock."""
        failed: fifo.FifoError | None = None
        try:
            call = self.with_message(letter.message.renew)
            await self.timed(f"renew {letter}", call, TIMEOUT_S)
        except fifo.FifoError as error:
            failed = error
        self.scene.log(f"{self} renews {letter}: {failed!r}")
        self.scene.promises.renewed(letter, failed)

    async def process(self, letter: Letter, seconds: float, end: str, *, cancels: bool) -> None:
        """Handle a message in a block that ends in one of the ways there are."""
        message = letter.message
        verbs = {"well": Verb.ACK, "terminal": Verb.TERMINATE, "error": Verb.NACK}
        verb = verbs.get(end, Verb.RELEASE)
        one = Asking(letter, verb)
        letter.in_block = True
        try:
            block = (
                Handled(message) if self.blocks else message.process(cancel_on_lock_lost=cancels)
            )
            async with block:
                await asyncio.sleep(seconds)
                letter.in_block = False
                if not message.settled:
                    letter.asked.append(one)
                    one.verdict = Verdict.SENT
                if end == "terminal":
                    raise fifo.Terminal("never")
                if end == "error":
                    raise ValueError("the handler failed")
                if end == "cancelled":
                    raise asyncio.CancelledError
        except fifo.LockLost as error:
            if message.settled:  # it had run out, and a block that is cancelled gives it back
                letter.asked.append(Asking(letter, Verb.RELEASE, Verdict.SENT))
            self.scene.promises.cancelled(letter, error)
        except fifo.FifoError as error:
            one.error = error
            one.verdict = Verdict.UNKNOWN if error.unknown else Verdict.NO
            self.scene.promises.settled(one)
        except asyncio.CancelledError:
            if end != "cancelled":
                raise
        letter.in_block = False
        self.scene.log(f"{self} ends the block of {letter}: {end}, {one.error!r}")
