"""The protocol between clients and nodes, sans-I/O: bytes in, messages out; messages in, bytes out.

Owns frames, messages and their bounds. Must not know which side uses it, sockets or queues.
`docs/protocol.md` describes the same for strangers.
"""

from fifo.wire.errors import Code, LocalProtocolError, RemoteProtocolError, WireError
from fifo.wire.frames import BadMessage, Buffer, Decoder, Frame, encode
from fifo.wire.handshake import VERSION_MAX, VERSION_MIN, Opening, State, agree

__all__ = [
    "VERSION_MAX",
    "VERSION_MIN",
    "BadMessage",
    "Buffer",
    "Code",
    "Decoder",
    "Frame",
    "LocalProtocolError",
    "Opening",
    "RemoteProtocolError",
    "State",
    "WireError",
    "agree",
    "encode",
]
