"""Frames on their way to the connection: those of one turn to several queues share a frame.

Owns which frames go together, and their form on the wire. The order of a stream is kept: what was
put first is sent first. Must not know numbers, callers or answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fifo.client import limits
from fifo.client.connection.session import Session
from fifo.client.publishing.publish_stream import PublishFrame
from fifo.wire import limits as wire
from fifo.wire.columns import pack_parts, pack_publication
from fifo.wire.messages import Publish, PublishAcross


class Outbox:
    """Sends frames as they come, or, within `together`, as few as can be."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._gathers = False
        self._now: tuple[float, float] | None = None
        self._frames: list[PublishFrame] = []
        self._messages = self._bytes = self._column_bytes = 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Gather what is put meanwhile, and send it at the end."""
        self._gathers = True
        try:
            yield
        finally:
            self._gathers = False
            self._now = None
            self._flush()

    def clocks(self) -> tuple[float, float]:
        """Both clocks of this machine, read once for all that is sent together."""
        if self._now is not None:
            return self._now
        environment = self._session.environment
        now = environment.monotonic(), environment.wall()
        if self._gathers:
            self._now = now
        return now

    def put(self, frame: PublishFrame) -> None:
        """Send a frame behind all that were put before it."""
        if not self._gathers or _goes_alone(frame):
            self._flush()
            self._send(frame)
            return
        size, column_bytes = frame.work.bytes_held, _column_bytes(frame)
        first = self._frames[0] if self._frames else frame
        if (
            frame.stream.producer != first.stream.producer
            or len(self._frames) >= wire.PUBLISH_QUEUES_MAX
            or self._messages + len(frame.numbers) > wire.PUBLISH_ACROSS_MESSAGES_MAX
            or self._bytes + size > limits.FRAME_BYTES
            or self._column_bytes + column_bytes > limits.FRAME_COLUMN_BYTES
        ):
            self._flush()
        self._frames.append(frame)
        self._messages += len(frame.numbers)
        self._bytes += size
        self._column_bytes += column_bytes

    def _flush(self) -> None:
        frames = self._frames
        if not frames:
            return
        self._frames, self._messages, self._bytes, self._column_bytes = [], 0, 0, 0
        if len(frames) == 1:
            self._send(frames[0])
        else:
            self._send_together(frames)

    def _send(self, frame: PublishFrame) -> None:
        link = self._session.link
        if link is None:
            return  # Lost meanwhile: all that is unanswered goes again with the next one.
        columns, raw = pack_publication(frame.publication)
        numbers, stream = frame.numbers, frame.stream
        link.send(
            Publish(
                stream.queue,
                stream.producer,
                frame.previous,
                numbers[0],
                len(numbers),
                columns,
                frame.below(),
            ),
            frame.correlation,
            raw,
        )

    def _send_together(self, frames: list[PublishFrame]) -> None:
        link = self._session.link
        if link is None:
            return
        frames[0].others = frames[1:]
        parts = [
            (one.correlation, one.previous, one.numbers[0], one.below(), one.publication)
            for one in frames
        ]
        count, columns, raw = pack_parts(parts)
        queues = tuple([one.stream.queue for one in frames])
        producer = frames[0].stream.producer
        link.send(PublishAcross(producer, queues, count, columns), frames[0].correlation, raw)


def _goes_alone(frame: PublishFrame) -> bool:
    """Whether it gains nothing by company, or cannot have any: its numbers have holes."""
    numbers = frame.numbers
    return len(numbers) > limits.TOGETHER_MESSAGES or numbers[-1] - numbers[0] >= len(numbers)


def _column_bytes(frame: PublishFrame) -> int:
    """The bytes of its keys, headers and dedup ids."""
    publication = frame.publication
    if publication.keys is publication.headers is publication.dedup_ids is None:
        return 0
    columns = (publication.keys, publication.headers, publication.dedup_ids)
    return sum([sum(map(len, column)) for column in columns if column is not None])
