"""The frames of one producer to one queue: numbered, in order, sent again until answered.

Owns the numbering of semantics.md 10 on the client's side. A frame gets its numbers when it is
first sent; from then on they are its own for ever, only `previous` follows what is stored. Frames
are sent in the order in which they were added: none overtakes another, also when all are sent
again. A queue that was deleted and declared anew has another number: what is published goes on
there, but for what may have been stored in the old one, which ends unknown.
Must not know programs' calls: `publisher` makes frames and waits for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fifo.client import limits
from fifo.client.connection.calls import Tries
from fifo.client.connection.session import Session
from fifo.client.errors import FifoError, ProducerGap, QueueReplaced, SessionEnded, from_code
from fifo.client.publishing.confirms import Confirmed
from fifo.client.publishing.queue_numbers import QueueNumbers
from fifo.wire import Code, Frame
from fifo.wire.columns import Publication
from fifo.wire.messages import Error


class Work(Protocol):
    """The content of a frame, and the receiver of its outcome."""

    bytes_held: int
    numbers: Sequence[int] | None
    tries: Tries
    deadline: float
    """Time of the loop until which its callers wait."""

    def pack(self) -> Publication | None:
        """Return the messages whose callers have not gone; None where all have."""

    def done(self, confirmed: Confirmed | None, error: FifoError | None) -> None:
        """Report the outcome: the first `confirmed.total` messages are stored, the others not."""

    def abandoned(self) -> bool:
        """Whether all callers have gone."""


class PublishFrame:
    """A publish frame, from its addition until its answer."""

    __slots__ = (
        "correlation",
        "gaps",
        "in_doubt",
        "numbers",
        "others",
        "over",
        "packed",
        "previous",
        "publication",
        "queue_below",
        "queue_seen",
        "sent",
        "sent_at",
        "stream",
        "waits",
        "work",
    )

    def __init__(self, stream: PublishStream, work: Work) -> None:
        self.stream = stream
        self.work = work
        self.numbers: Sequence[int] = ()
        self.publication = _NOTHING
        self.packed = False
        self.over = False
        self.previous = 0
        """Number before it, as it was sent last."""
        self.others: Sequence[PublishFrame] = ()
        """Frames that went with it in one of several queues: an error for that is for all."""
        self.sent = False
        self.sent_at = (0.0, 0.0)  # by both clocks, the first time
        self.waits = True
        self.gaps = 0
        self.correlation = 0
        self.in_doubt = False
        """Sent again though an earlier transmission was not answered: that may be stored."""
        self.queue_below = 0
        """An earlier transmission was for a queue whose number is below this."""
        self.queue_seen = False
        """An answer had named a queue of the name before: one above `queue_below` replaced it."""

    def below(self) -> int:
        """The bound that goes with it: none before it is sent again."""
        return self.queue_below if self.in_doubt else 0

    def answered(self, frame: Frame) -> None:
        """Refused."""
        message = frame.message
        if not isinstance(message, Error):
            return
        others, self.others = self.others, ()
        self.stream.refused(self, message)
        for other in others:
            if not other.over:
                other.stream.refused(other, message)

    def confirmed(self, item: tuple[Any, ...]) -> None:
        """Confirmed, or a part of it."""
        self.others = ()
        self.stream.confirmed(self, item)


_NOTHING = Publication(())


class Sending(Protocol):
    """The way of frames to the connection."""

    def clocks(self) -> tuple[float, float]:
        """Both clocks of this machine: one of them goes on while it sleeps."""

    def put(self, frame: PublishFrame) -> None:
        """Send a frame behind all that were put before it."""


class PublishStream:
    """All unanswered frames of one (producer, queue)."""

    def __init__(
        self,
        session: Session,
        outbox: Sending,
        queue: str,
        producer: int,
        last_stored: int,
        queue_number: int,
        numbers: QueueNumbers,
        released: Released,
    ) -> None:
        self.queue = queue
        self.producer = producer
        self.last_stored = last_stored
        self.queue_number = queue_number
        """Of the queue that `last_stored` is about; 0 before the first answer."""
        self.refusal: FifoError | None = None
        """Why the node stores nothing at the moment; what stands behind waits for the same."""
        self._session = session
        self._outbox = outbox
        self._seen = numbers
        self._released = released
        self._next = last_stored + 1
        self._frames: deque[PublishFrame] = deque()
        self._waiting = 0
        self._paused_until: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<stream to {self.queue}: {len(self._frames)} unanswered, {self._waiting} unsent>"

    def add(self, work: Work) -> PublishFrame:
        """Send it as soon as may be, after all that was added before."""
        frame = PublishFrame(self, work)
        self._frames.append(frame)
        self._waiting += 1
        if self._waiting == 1 and self._may_send():
            before = self._frames[-2] if len(self._frames) > 1 else None
            self._send(frame, self._after(before))
        else:
            self.pump()
        return frame

    def pump(self) -> None:
        """Send what waits, in order, as long as the connection takes it."""
        if not self._waiting or not self._may_send():
            return
        before: PublishFrame | None = None
        for frame in list(self._frames):
            if not self._waiting or not self._may_send():
                return
            if frame.waits and self._is_too_late(frame):
                self._pause()
                return
            if frame.waits and not self._send(frame, self._after(before)):
                continue
            before = frame

    def _may_send(self) -> bool:
        link = self._session.link
        return link is not None and link.writable and self._paused_until is None

    def _is_too_late(self, frame: PublishFrame) -> bool:
        """Whether the answer to one more try would come too late for its callers, who would learn
        less from it than from the refusal of the last one."""
        work = frame.work
        if work.tries.refusal is None or work.abandoned():
            return False
        return work.deadline - self._session.loop.time() < limits.RETRY_S

    def _after(self, before: PublishFrame | None) -> int:
        """`previous` of the frame behind `before`."""
        return self.last_stored if before is None else before.numbers[-1]

    def _send(self, frame: PublishFrame, previous: int) -> bool:
        """Send a frame; False where it was dropped, because its caller has gone."""
        if not self._pack(frame):
            return False
        if not frame.sent:
            frame.sent = True
            frame.sent_at = self._outbox.clocks()
            seen = max(self.queue_number, self._seen.of(self.queue))
            frame.queue_seen = seen > 0
            welcome = self._session.welcome
            # All queues that existed when this connection was opened have lower numbers.
            made_below = 0 if welcome is None else welcome.queue_below
            frame.queue_below = max(seen + 1 if seen else 0, made_below)
        frame.waits = False
        self._waiting -= 1
        frame.work.tries.begin()
        first = frame.numbers[0]
        frame.previous = previous if previous < first else first - 1
        frame.others = ()
        self._outbox.put(frame)
        return True

    def _doubt(self, frame: PublishFrame) -> None:
        """Note that a frame is sent again although an answer is missing."""
        if frame.work.tries.unknown and not frame.in_doubt:
            frame.in_doubt = True
            if self.queue_number:
                # Said by the answer to a frame before it, so it was not for an earlier queue.
                frame.queue_below = max(frame.queue_below, self.queue_number + 1)
                frame.queue_seen = True

    def _pack(self, frame: PublishFrame) -> bool:
        """Give a frame its numbers and its bytes; again where it was refused, for a message whose
        caller has heard of that must not be stored later."""
        if frame.packed and frame.work.tries.unknown and not frame.work.abandoned():
            return True
        publication = frame.work.pack()
        if publication is None:
            self._remove(frame)
            frame.work.done(None, None)
            self._released(frame.work)
            return False
        count = len(publication.bodies)
        frame.publication = publication
        if frame.packed:
            frame.numbers = frame.numbers[:count]
            return True
        numbers = frame.work.numbers
        if numbers is None:
            numbers = range(self._next, self._next + count)
        self._next = max(self._next, numbers[-1] + 1)
        frame.numbers = numbers
        frame.packed = True
        frame.correlation = self._session.next_correlation()
        self._session.expect(frame.correlation, frame)
        return True

    # Answers.

    def confirmed(self, frame: PublishFrame, item: tuple[Any, ...]) -> None:
        """An item of `Confirms`."""
        error = item[5] if len(item) > 5 else None
        repeats = item[6] if len(item) > 6 else ()
        confirmed = Confirmed(item[1], item[2], frame.numbers, item[3], item[4], repeats)
        self._confirmed(frame, confirmed, error)

    def refused(self, frame: PublishFrame, error: Error) -> None:
        """An error in place of a confirm."""
        nothing = Confirmed(0, 0, frame.numbers, 0, 0)
        self._confirmed(frame, nothing, (error.code, error.text, error.retryable, error.detail))

    def _confirmed(
        self, frame: PublishFrame, confirmed: Confirmed, error: tuple[Any, ...] | None
    ) -> None:
        total = confirmed.total
        if total > len(frame.numbers):
            total = max(len(frame.numbers), confirmed.duplicates)
            confirmed = confirmed._replace(stored=total - confirmed.duplicates)
        is_another = False
        if confirmed.queue > self.queue_number:
            self._seen.saw(self.queue, confirmed.queue)
            is_another = self.queue_number > 0
            if is_another:
                self.last_stored = 0
            self.queue_number = confirmed.queue
        if total:
            metrics = self._session.metrics
            metrics.confirmed += total
            if confirmed.duplicates or confirmed.repeats:
                metrics.duplicates += confirmed.before
            last = frame.numbers[total - 1]
            if last > self.last_stored:
                self.last_stored = last
            self.refusal = None
        if error is None:
            self._finish(frame, confirmed, None)
        else:
            self._refused(frame, confirmed, error, is_another=is_another)

    def _refused(
        self,
        frame: PublishFrame,
        confirmed: Confirmed,
        error: tuple[Any, ...],
        *,
        is_another: bool,
    ) -> None:
        """Not all of a frame was stored. `is_another`: the queue was declared anew meanwhile."""
        code, text, retryable = error[0], error[1], error[2]
        refused = from_code(code, text, error[3] if len(error) > 3 else None, retryable=retryable)
        tries = frame.work.tries
        # A part that was stored is no refusal to a caller whose time ended just now.
        if not confirmed.total:
            if code == Code.GAP:
                tries.passed_over()
            else:
                tries.refused(refused)
        if is_another:
            self.last_stored = max(self.last_stored, _expected(refused) or 0)
            for one in self._frames:
                one.gaps = 0
        if code == Code.QUEUE_REPLACED or (code == Code.GAP and is_another and tries.unknown):
            error_of = _replaced if is_another or frame.queue_seen else _maybe_replaced
            self._finish(frame, confirmed, error_of(self.queue))
            return
        # Of an earlier transmission only the queue itself knows, by the numbers.
        refused.unknown |= tries.unknown and not confirmed.queue and not retryable
        if frame.work.abandoned():
            # Its caller has heard of an earlier failure, or has gone: it is not sent again.
            self._finish(frame, confirmed, refused)
        elif code == Code.GAP and not confirmed.total:
            self._gap(frame, confirmed, refused)
        elif retryable and code != Code.GAP and not confirmed.total:
            self.refusal = refused
            self._later(frame)
        else:
            self._finish(frame, confirmed, refused)

    def _gap(self, frame: PublishFrame, confirmed: Confirmed, refused: FifoError) -> None:
        """Handle a `gap` answer: a frame before this one was not stored."""
        frame.gaps += 1
        expected = _expected(refused)
        if confirmed.queue and expected is not None and expected < self.last_stored:
            self._finish(frame, confirmed, _lost(self.queue, self.last_stored, expected))
            return
        head = self._frames[0] if self._frames else None
        if frame is head:
            # Nothing unanswered stands before it, so `last_stored` is the truth by now: an answer
            # to the frame before it has raised it, or that frame was refused and is given up.
            # Sent again, `_after` gives it that number as `previous`. If a node still refuses,
            # another program uses this producer: report it.
            if frame.gaps > limits.GAP_RESENDS:
                self._finish(frame, confirmed, refused)
                return
            self._wait(frame)
            self.pump()
            return
        # A frame before it is unanswered: it was refused (`gap`, not now) and waits to be sent
        # again, or its answer is on the way. `pump` sends in order, so this one goes behind it.
        self._wait(frame)
        if frame.gaps > limits.GAP_RESENDS and head is not None:
            # Refused repeatedly behind the same unanswered head: the head itself was lost on the
            # way. After a pause all frames are sent again, in order; numbers make that idempotent.
            for one in self._frames:
                one.gaps = 0
                self._doubt(one)
                self._wait(one)
            self._pause()
            return
        self.pump()

    def _later(self, frame: PublishFrame) -> None:
        """Refused for the moment: it and what is behind it go again after a pause."""
        self._wait(frame)
        self._pause()

    def _wait(self, frame: PublishFrame) -> None:
        if not frame.waits:
            frame.waits = True
            self._waiting += 1

    def _pause(self) -> None:
        if self._paused_until is None:
            delay = limits.RETRY_S * (0.75 + self._session.environment.chance() / 2)
            self._paused_until = self._session.loop.call_later(delay, self._resume)

    def _resume(self) -> None:
        self._paused_until = None
        self.pump()

    def _finish(self, frame: PublishFrame, confirmed: Confirmed, error: FifoError | None) -> None:
        self._remove(frame)
        frame.work.done(confirmed, error)
        self._released(frame.work)

    def _remove(self, frame: PublishFrame) -> None:
        if self._frames and self._frames[0] is frame:
            self._frames.popleft()
        else:
            self._frames.remove(frame)
        if frame.waits:
            self._waiting -= 1
        if frame.packed:
            self._session.forget(frame.correlation)
        frame.publication = _NOTHING
        frame.over = True

    # The session's events.

    def resend(self) -> None:
        """Send all unanswered frames again, in order; give up those whose callers have gone."""
        for frame in list(self._frames):
            frame.gaps = 0
            self._doubt(frame)
            self._wait(frame)
            if frame.sent and frame.work.abandoned():
                self._finish(frame, Confirmed(0, 0, frame.numbers, 0, 0), None)
        if self._paused_until is not None:
            self._paused_until.cancel()
            self._paused_until = None
        self.pump()

    def session_ended(self, error: SessionEnded, *, was_gone: bool) -> None:
        """The session's own producer is gone: what was sent is unknown, the rest starts at 1.

        A node keeps a session for a minute after what was published in it. One that is gone before
        has ended before what was sent last reached it: that is sent again, under its numbers.
        """
        if self.producer:
            return
        self.fail(error, only=self._may_be_stored if was_gone else _was_sent)
        self.last_stored = 0
        if not any(frame.packed for frame in self._frames):
            self._next = 1

    def _may_be_stored(self, frame: PublishFrame) -> bool:
        passed = zip(self._outbox.clocks(), frame.sent_at, strict=True)
        return frame.sent and max(now - then for now, then in passed) >= limits.UNSTORED_S

    def fail(
        self, error: FifoError, *, only: Callable[[PublishFrame], bool] = lambda frame: True
    ) -> None:
        """Give up what is unanswered: unknown where it was sent."""
        for frame in list(self._frames):
            if not only(frame):
                continue
            cause = type(error)(str(error), unknown=frame.work.tries.unknown)
            cause.code = error.code
            self._finish(frame, Confirmed(0, 0, frame.numbers, 0, 0), cause)
        if not self._frames and self._paused_until is not None:
            self._paused_until.cancel()
            self._paused_until = None


def _was_sent(frame: PublishFrame) -> bool:
    return frame.sent


def _expected(refused: FifoError) -> int | None:
    """The number that the queue has stored last of this producer, where a refusal says it."""
    found = refused.detail.get("expected") if isinstance(refused.detail, dict) else None
    return found if isinstance(found, int) else None


def _replaced(queue: str) -> FifoError:
    error = QueueReplaced(
        f"queue {queue!r} was deleted and declared anew before the answer came: the message is not"
        " in the queue that has the name now, and may have been stored in one before it",
        unknown=True,
    )
    error.code = Code.QUEUE_REPLACED
    return error


def _maybe_replaced(queue: str) -> FifoError:
    """No queue of the name had been seen: there may have been none before this one."""
    error = QueueReplaced(
        f"no answer to the message came, and queue {queue!r}, declared after the connection that"
        " it was sent on, has not stored it: whether there was a queue of that name before, which"
        " may have stored it, is not known; a client that has declared its queue knows",
        unknown=True,
    )
    error.code = Code.QUEUE_REPLACED
    return error


def _lost(queue: str, confirmed: int, stored: int) -> FifoError:
    error = ProducerGap(
        f"queue {queue!r} has lost confirmed messages: message {confirmed} of this producer was"
        f" confirmed, and the last that is stored is {stored}; the cluster was restored from an"
        " older state, or lost its disks",
        detail={"expected": stored, "confirmed": confirmed},
    )
    error.code = Code.GAP
    return error


class Released(Protocol):
    """Callback for a frame that no longer takes room in the window."""

    def __call__(self, work: Work, /) -> None:
        """Called when the frame was answered or abandoned."""
