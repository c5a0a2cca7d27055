"""A question to whichever node listens at an address: which configuration the cluster has.

Owns the connection of a question on both sides, from the proof to the answer. One that asks knows
an address and no name; both sides prove that they know the secret, as members do, and nothing of it
reaches Raft. Must not know what a configuration is.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, NamedTuple

from node.journal.errors import NodeError
from node.peers import limits
from node.peers.frames import FrameInvalid
from node.peers.transport import PeerLink

if TYPE_CHECKING:
    from node.peers.handshake import DialerSide
    from node.peers.message import Message
    from node.peers.transport import TcpTransport


class Unanswered(NodeError):
    """A question that had no answer; the message says why, as far as this side knows."""


class Answer(NamedTuple):
    """`reason`: why the cluster takes no node now; empty where it does. `configuration`: its newest
    one, as bytes of its own form."""

    reason: str
    configuration: bytes


class Question(PeerLink):
    """The side that asks."""

    def __init__(self, owner: TcpTransport, side: DialerSide) -> None:
        super().__init__(owner, side)
        self.answer: Answer | None = None

    def _is_proven(self) -> None:
        self._asks = True
        self._watch()
        self._owner.question_proven(self)
        self.send({"type": "ask"})

    def _take_own(self, message: Message) -> None:
        if message["type"] == "keepalive":
            return
        if message["type"] != "members":
            raise FrameInvalid(f"unexpected {message['type']} as the answer to a question")
        self.answer = Answer(message["reason"], message["configuration"])
        self.close()


async def ask(port: TcpTransport, address: tuple[str, int]) -> Answer:
    """Ask the node that listens at `address`, with the identity of the node of `port`, which need
    not listen itself. Raises `Unanswered`."""
    link = None
    try:
        async with asyncio.timeout(limits.ASK_SECONDS):
            link = await port.dial_as(Question, address)
            await asyncio.wait((link.ended,))
    except TimeoutError:
        raise Unanswered("it does not answer: is another program there?") from None
    except ssl.SSLError as error:
        raise Unanswered(f"TLS failed: {error.reason or error}") from None
    except OSError as error:
        raise Unanswered(f"it cannot be reached: {error.strerror or error}") from None
    finally:
        if link is not None:
            link.close()
    if link.answer is None:
        raise Unanswered(
            "it closed the connection without an answer: its log says why; the name in [cluster] "
            "and the secret_file have to be the same on every node, this node needs a name of its "
            "own, and the address has to be that of a peer port"
        )
    return link.answer
