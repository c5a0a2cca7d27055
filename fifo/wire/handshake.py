"""The opening of a connection, as a small state machine that does not know which side it plays.

    opening --hello/welcome--> open --close--> closed        opening --redirect/error--> closed

Owns the order of frames: nothing but the opening before the welcome, the version that both sides
speak, and the numbers that tie answers to requests. Must not know sockets, clocks or credentials:
the owner of the connection decides when to welcome.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from fifo.wire.errors import Code, LocalProtocolError, RemoteProtocolError
from fifo.wire.frames import BadMessage, Decoder, Frame
from fifo.wire.limits import FRAME_BYTES_MAX, KIB
from fifo.wire.messages import (
    Authenticate,
    Challenge,
    Error,
    Hello,
    Message,
    Redirect,
    Welcome,
)

VERSION_MIN: Final = 1
VERSION_MAX: Final = 1

OPENING_BYTES_MAX: Final = 16 * KIB
"""A frame before the welcome: a stranger may not make us hold more."""

FROM_CLIENT: Final = frozenset[type[Message]]({Hello})
"""The message that a node awaits first."""
FROM_NODE: Final = frozenset[type[Message]]({Welcome, Challenge, Redirect, Error})
"""The messages that a client awaits after its hello."""

_NEXT: Final[dict[type[Message], frozenset[type[Message]]]] = {
    Hello: frozenset({Authenticate}),
    Authenticate: frozenset({Authenticate}),
    Challenge: FROM_NODE,
    Redirect: frozenset(),
    Error: frozenset(),
}
"""After a frame of the opening: what may follow it from the same side before the welcome."""


class State(Enum):
    """Where a connection stands."""

    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class Opening:
    """Checks what arrives until the connection is open, and hands out correlation numbers."""

    def __init__(
        self,
        opening_bytes_max: int = OPENING_BYTES_MAX,
        *,
        awaits: frozenset[type[Message]] = FROM_CLIENT | FROM_NODE,
    ) -> None:
        """`opening_bytes_max`: a client passes FRAME_BYTES_MAX, for it chose whom it talks to.

        `awaits`: FROM_CLIENT or FROM_NODE, so that a stranger cannot play the other side.
        """
        self.state = State.OPENING
        self.decoder = Decoder(opening_bytes_max, requests=awaits is FROM_CLIENT)
        self._awaits = awaits
        self._correlation = 0

    def next_correlation(self) -> int:
        """A number for the next request of this side; never 0, which means "no request"."""
        self._correlation += 1
        return self._correlation

    def receive_data(self, data: bytes) -> list[Frame | BadMessage]:
        """Frames that these bytes complete, in order; raises RemoteProtocolError and is closed."""
        decoder = self.decoder
        if self.state is not State.CLOSED:
            decoder.feed(data)
        frames: list[Frame | BadMessage] = []
        while not decoder.empty and (frame := self.next_frame()) is not None:
            frames.append(frame)
        return frames

    def next_frame(self) -> Frame | BadMessage | None:
        """The next frame that has arrived whole; raises RemoteProtocolError and is closed."""
        if self.state is State.CLOSED:
            return None
        try:
            frame = self.decoder.next_frame()
            if self.state is State.OPENING and frame is not None:
                self._check_opening(frame)
        except RemoteProtocolError:
            self.state = State.CLOSED
            raise
        return frame

    def _check_opening(self, frame: Frame | BadMessage) -> None:
        if isinstance(frame, BadMessage):
            raise RemoteProtocolError(frame.code, frame.text)
        kind = type(frame.message)
        if kind not in self._awaits:
            raise RemoteProtocolError(
                Code.PROTOCOL, f"unexpected {kind.__name__} during the handshake"
            )
        if kind is Welcome:
            self.opened()
        else:
            self._awaits = _NEXT[kind]

    def opened(self) -> None:
        """Both sides have said hello: from now on every frame is allowed, at full size."""
        if self.state is not State.OPENING:
            raise LocalProtocolError("a connection is opened once")
        self.state = State.OPEN
        self.decoder.frame_bytes_max = FRAME_BYTES_MAX

    def closed(self) -> None:
        """No more frames are handed out."""
        self.state = State.CLOSED


def agree(hello: Hello) -> int:
    """The version to speak: the highest that both know. Raises RemoteProtocolError."""
    version = min(hello.version_max, VERSION_MAX)
    if version < max(hello.version_min, VERSION_MIN):
        raise RemoteProtocolError(
            Code.UNSUPPORTED_VERSION,
            f"this side speaks versions {VERSION_MIN} to {VERSION_MAX}, the other"
            f" {hello.version_min} to {hello.version_max}",
        )
    return version
