"""Results of actors by reply queue: `Results(backend=FifoResultBackend(broker))` as middleware.

Owns what the process that asked has heard, and how a worker answers it: a message carries the queue
of its process as the option `reply_to`, a result comes back to it and can be read there, and
nowhere else. Must not know how actors are run.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from dramatiq import Encoder, Message
from dramatiq.results import Missing, ResultBackend, ResultMissing, Results, ResultTimeout
from dramatiq.results.backend import DEFAULT_TIMEOUT
from dramatiq.results.result import wrap_exception, wrap_result

import fifo
from fifo.blocking import BlockingClient, BlockingConsumer
from fifo.dramatiq import limits
from fifo.dramatiq.errors import broker_errors
from fifo.worker.replies import CORRELATION, LABEL, reply_queue

if TYPE_CHECKING:
    from fifo.dramatiq.broker import FifoBroker

_log = logging.getLogger("fifo.dramatiq")

REPLY_TO: Final = "reply_to"
"""Option of a message: the queue of the process that asked."""


class ResultNotSent(Exception):
    """The actor is done, and what it returned fits into no message."""


class FifoResultBackend(ResultBackend):  # type: ignore[misc]  # mypy reads nothing of dramatiq
    """Results for the process that sent the message, as often as it asks, for ten minutes.

    Of a `FifoBroker` alone, whose client it uses: actors that store results are asked for them.
    """

    def __init__(self, broker: FifoBroker, *, encoder: Encoder | None = None) -> None:
        super().__init__(encoder=encoder)
        self._broker = broker
        self._replies: _Replies | None = None
        self._opening = threading.Lock()
        broker.asks = self.ask

    def ask(self, message: Message) -> None:
        """Ask for the results of a message and of its pipeline, where any is stored.

        One that asks already, for it is tried again, keeps its queue. Raises ConnectionClosed.
        """
        parts = list(_pipeline(message))
        if not any(self._stores(actor, options) for actor, options in parts):
            return
        queue: str | None = None
        for _, options in parts:
            if REPLY_TO not in options:
                queue = queue or self._heard().queue
                options[REPLY_TO] = queue

    # In a worker.

    def store_result(self, message: Message, result: Any, ttl: int) -> None:
        """Send a result to the process that asked; one that no message can hold is an error there.

        Raises ConnectionClosed."""
        self._answer(message, wrap_result(result), ttl)

    def store_exception(self, message: Message, exception: Exception, ttl: int) -> None:
        """Send the exception of an actor that failed for good. Raises ConnectionClosed."""
        self._answer(message, wrap_exception(exception), ttl)

    def _answer(self, message: Message, ending: Any, ttl_ms: int) -> None:
        queue = message.options.get(REPLY_TO)
        if not queue:
            return
        try:
            try:
                self._send(queue, message, self._encoded(ending), ttl_ms)
            except (fifo.InvalidArgument, fifo.MessageTooLarge, ResultNotSent) as error:
                _log.warning("a result cannot be sent, its actor is done all the same: %s", error)
                text = f"the actor is done, and its result cannot be sent: {error}"
                body = self._encoded(wrap_exception(ResultNotSent(text)))
                self._send(queue, message, body, ttl_ms)
        except fifo.QueueNotFound:
            _log.debug("the process that sent %s has gone: its result is dropped", message)

    def _encoded(self, ending: Any) -> bytes:
        try:
            body: bytes = self.encoder.encode(ending)
        except Exception as error:  # of whatever encoder the app has
            raise ResultNotSent(f"{type(error).__name__}: {error}") from error
        return body

    def _send(self, queue: str, message: Message, body: bytes, ttl_ms: int) -> None:
        headers = {CORRELATION: self.build_message_key(message)}
        with broker_errors():
            self._broker.client.publish(queue, body, headers=headers, ttl=ttl_ms / 1000)

    # In the process that asks.

    def get_result(
        self, message: Message, *, block: bool = False, timeout: int | None = None
    ) -> Any:
        """The result, after up to `timeout` milliseconds if `block`. Raises ResultMissing,
        ResultTimeout, and ResultFailure where the actor failed."""
        replies = self._replies
        wait_ms = (DEFAULT_TIMEOUT if timeout is None else timeout) if block else 0
        key = self.build_message_key(message)
        body = replies.wait(key, wait_ms / 1000) if replies is not None else None
        if body is not None:
            return self.unwrap_result(self.encoder.decode(body))
        raise ResultTimeout(message) if block else ResultMissing(message)

    def _get(self, message_key: str) -> Any:
        """A result by its key, for what builds on it."""
        body = self._replies.wait(message_key, 0) if self._replies is not None else None
        return Missing if body is None else self.encoder.decode(body)

    def _heard(self) -> _Replies:
        """The reply queue of this process, which is read from now on."""
        with self._opening:
            client = self._broker.client
            replies = self._replies
            if replies is None or not replies.reads(client):
                with broker_errors():
                    replies = self._replies = _Replies(client)
            return replies

    def _stores(self, actor: str, options: Mapping[str, Any]) -> bool:
        """Whether the result of a message is stored, as `Results` decides it."""
        known = self._broker.actors.get(actor)
        of_actor = known.options if known is not None else {}
        for middleware in self._broker.middleware:
            if isinstance(middleware, Results) and middleware.backend is self:
                default = of_actor.get("store_results", middleware.store_results)
                return bool(options.get("store_results", default))
        return False


class _Replies:
    """The reply queue of a process, read on a thread for as long as its client."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._pid = os.getpid()
        self._found: dict[str, tuple[float, bytes]] = {}
        """By message: until when it is kept, and the result as it came."""
        self._changed = threading.Condition()
        spec = reply_queue(client.environment.entropy)
        self.queue = spec.name
        client.declare(spec, warn=False)  # It is to expire.
        consumer = client.consume(self.queue, label=LABEL)
        consumer.subscribe()
        self._thread = threading.Thread(
            target=self._read, args=(consumer,), name="fifo results", daemon=True
        )
        self._thread.start()

    def reads(self, client: BlockingClient) -> bool:
        """Whether replies come: to this process, and to its client of now."""
        is_own = self._client is client and self._pid == os.getpid()
        return is_own and self._thread.is_alive()

    def wait(self, key: str, timeout_s: float) -> bytes | None:
        """A result, after up to `timeout_s`; None where there is none."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._found, timeout_s)
            until, body = self._found.get(key, (0.0, None))
            return body if time.monotonic() < until else None

    def _read(self, consumer: BlockingConsumer) -> None:
        try:
            for message in consumer:
                message.ack()
                with self._changed:
                    self._keep(message.headers.get(CORRELATION, ""), bytes(message.body))
                    self._changed.notify_all()
        except fifo.ClientClosed:
            _log.debug("no more results are read from %s: its client is closed", self.queue)
        except fifo.FifoError as error:
            _log.warning("results that were on their way are lost: %s", error)

    def _keep(self, key: str, body: bytes) -> None:
        now = time.monotonic()
        for old, (until, _) in list(self._found.items()):
            if until > now and len(self._found) < limits.RESULTS_MAX:
                break
            del self._found[old]
        self._found[key] = (now + limits.RESULT_S, body)


def _pipeline(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
    """(actor, options) of a message and of all that follow it in its pipeline."""
    actor, options = message.actor_name, message.options
    while True:
        yield actor, options
        target = options.get("pipe_target")
        if target is None:
            return
        actor, options = target["actor_name"], target["options"]
