"""The errors of the wire: two protocol exceptions, beside the codes of `fifo.words`.

Owns the exceptions. Must not know how a client or a node reacts.
"""

from __future__ import annotations

from fifo.words.codes import RETRYABLE, Code

__all__ = ["RETRYABLE", "Code", "LocalProtocolError", "RemoteProtocolError", "WireError"]


class WireError(Exception):
    """Root of what this package raises."""


class LocalProtocolError(WireError):
    """Our own side tried to send what the protocol does not allow: a bug of the caller."""


class RemoteProtocolError(WireError):
    """The peer sent what the protocol does not allow.

    `code` says what to answer; after it the stream cannot be trusted and has to be closed.
    """

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
