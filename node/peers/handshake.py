"""The identity of a peer, proven before a Raft frame is read (raft.md 3.3; b19). Sans-I/O.

Owns the handshake: the dialer says hello, the listener answers with a nonce, the dialer proves
that it knows the secret, then the listener does. The proofs are HMAC-SHA256 over everything both
sides said, so neither can be used for another pair, direction, cluster or version. The listener
proves nothing, and tells nothing, to one who has not proved itself.

It proves the peer at connect time only: on networks that others can write to, TLS has to go
around it.

The hello of 0.1.0 has fixed fields, and is the only one that its members take. So a member of
today says the same one until the cluster is done with them, and shows by how its incarnation begins
that it says more behind the handshake.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgpack

from node.journal.errors import NodeError
from node.peers.frames import (
    INCARNATION_BYTES,
    NONCE_BYTES,
    PROTOCOL_NEWEST,
    PROTOCOL_OF_CHANGES,
    PROTOCOL_OLDEST,
)
from node.peers.message import SAME_VERSION, Message

if TYPE_CHECKING:
    from collections.abc import Callable


class PeerRefused(NodeError):
    """A handshake that did not prove a member of this cluster; the reason is for our log only."""


class PeerAnswered(PeerRefused):
    """A refusal that is answered before the connection is closed."""

    def __init__(self, problem: str, answer: Message) -> None:
        super().__init__(problem)
        self.answer = answer


class PeerOutdated(PeerAnswered):
    """A hello of a member that does not speak the protocol in use. `answer` is no answer that it
    takes, so that it writes a line about versions, which a closed connection does not make it."""


class PeerTwice(PeerAnswered):
    """Another process of a member that is connected, and lives."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity that one node proves: name, cluster, secret, and this process."""

    name: str
    cluster_id: bytes
    secret: bytes
    incarnation: bytes


TELLS: Final = b"fifo>=5\0"
"""The first bytes of the incarnation of a member that says what it can, by `versions`. 0.1.0 draws
all 16 bytes: one start in 2^64 of it begins so."""


def new_incarnation(entropy: Callable[[int], bytes]) -> bytes:
    """A random name for this start of the process."""
    return TELLS + entropy(INCARNATION_BYTES)[len(TELLS) :]


class _Side:
    """State that both sides of a handshake keep."""

    def __init__(
        self, identity: Identity, entropy: Callable[[int], bytes], used: int = PROTOCOL_OLDEST
    ) -> None:
        """`used`: the protocol that the cluster uses, as far as this member knows."""
        self._identity = identity
        self._nonce = entropy(NONCE_BYTES)
        self._used = used
        self._transcript: bytes = b""
        self.peer = ""
        self.peer_incarnation = b""

    @property
    def peer_tells(self) -> bool:
        """Whether the other side says what it can once it is proven, and takes it said."""
        return self.peer_incarnation.startswith(TELLS)

    def _agree(
        self,
        version: int,
        dialer: tuple[str, bytes, bytes],
        listener: tuple[str, bytes, bytes],
    ) -> None:
        cluster_id = self._identity.cluster_id
        self._transcript = msgpack.packb([version, cluster_id, *dialer, *listener])

    def _proof(self, role: bytes) -> bytes:
        return hmac.digest(self._identity.secret, role + self._transcript, hashlib.sha256)

    def _hello_to(self, peer: str) -> Message:
        identity = self._identity
        return {
            "type": "hello",
            "version": self._used,
            "cluster_id": identity.cluster_id,
            "from": identity.name,
            "to": peer,
            "incarnation": identity.incarnation,
            "nonce": self._nonce,
        }

    def _own(self) -> tuple[str, bytes, bytes]:
        return (self._identity.name, self._identity.incarnation, self._nonce)

    def _check(self, message: Message, role: bytes) -> None:
        if not hmac.compare_digest(message["proof"], self._proof(role)):
            raise PeerRefused(
                f"{self.peer!r} does not know the secret; set the same secret_file on every node"
            )


_DIALER, _LISTENER = b"fifo peer dialer\0", b"fifo peer listener\0"


class DialerSide(_Side):
    """The side that opened the connection. A `peer` without a name is whichever node listens at
    the address that was dialed: such a connection is for a question alone (`asking.py`)."""

    def __init__(
        self,
        identity: Identity,
        entropy: Callable[[int], bytes],
        peer: str,
        used: int = PROTOCOL_OLDEST,
    ) -> None:
        super().__init__(identity, entropy, used)
        self.peer = peer

    def hello(self) -> Message:
        """The first frame."""
        return self._hello_to(self.peer)

    def received(self, message: Message) -> tuple[Message | None, bool]:
        """The answer to send, and whether the peer is proven now. Raises `PeerRefused`."""
        if message["type"] == "challenge" and not self._transcript:
            self.peer_incarnation = message["incarnation"]
            other = (self.peer, message["incarnation"], message["nonce"])
            self._agree(self._used, self._own(), other)
            return {"type": "proof", "proof": self._proof(_DIALER)}, False
        if message["type"] == "welcome" and self._transcript:
            self._check(message, _LISTENER)
            return None, True
        expected = "welcome" if self._transcript else "challenge"
        raise PeerRefused(
            f"{self.peer!r} sent {message['type']}, must send {expected}; {SAME_VERSION}"
        )


class ListenerSide(_Side):
    """The side that accepted the connection. `members` are the names that may dial it."""

    def __init__(
        self,
        identity: Identity,
        entropy: Callable[[int], bytes],
        members: frozenset[str],
        used: int = PROTOCOL_OLDEST,
    ) -> None:
        super().__init__(identity, entropy, used)
        self._members = members
        self.asks = False
        """Whether the other side has a question, and does not know whom it has dialed."""

    def received(self, message: Message) -> tuple[Message | None, bool]:
        """The answer to send, and whether the peer is proven now. Raises `PeerRefused`."""
        if message["type"] == "hello" and not self._transcript:
            return self._hello(message), False
        if message["type"] == "proof" and self._transcript:
            self._check(message, _DIALER)
            return {"type": "welcome", "proof": self._proof(_LISTENER)}, True
        expected = "proof" if self._transcript else "hello"
        raise PeerRefused(f"{message['type']} received, must be {expected}; {SAME_VERSION}")

    def _hears_all(self, message: Message) -> bool:
        """Whether any node that knows the secret is heard, a member or not. One that was away while
        the members changed is dialed by a leader that it does not know; one that joins is known by
        no member. Of a question the answer says whether members may change."""
        incarnation: bytes = message["incarnation"]
        newest: int = max(self._used, message["version"])
        return incarnation.startswith(TELLS) and newest >= PROTOCOL_OF_CHANGES

    def _hello(self, message: Message) -> Message:
        identity = self._identity
        if not PROTOCOL_OLDEST <= message["version"] <= PROTOCOL_NEWEST:
            raise PeerRefused(
                f"{message['from']!r} speaks protocol version {message['version']}, this node "
                f"{PROTOCOL_OLDEST} to {PROTOCOL_NEWEST}; {SAME_VERSION}"
            )
        if message["cluster_id"] != identity.cluster_id:
            raise PeerRefused(
                f"{message['from']!r} is of cluster {message['cluster_id'].hex()}, this node of "
                f"{identity.cluster_id.hex()}; set the same name in [cluster] on every node, or "
                "correct the addresses of the nodes"
            )
        if message["from"] == identity.name:
            raise PeerRefused(
                f"a node named {identity.name!r} dialed {identity.name!r}: choose another name, or "
                "another address to begin at than its own"
            )
        if message["to"] not in ("", identity.name):
            raise PeerRefused(
                f"{message['from']!r} dialed {message['to']!r} and reached {identity.name!r}; "
                f"correct the peer address of {message['to']!r} that {message['from']!r} has"
            )
        self.asks = not message["to"]
        if message["from"] not in self._members and not self._hears_all(message):
            dialing = ", ".join(sorted(self._members)) or "no member"
            raise PeerRefused(
                f"{message['from']!r} dialed {identity.name!r}, which is dialed by {dialing}; list "
                "the same nodes in the configuration of every node"
            )
        self.peer = message["from"]
        self.peer_incarnation = message["incarnation"]
        if message["version"] < self._used and not self.peer_tells:
            raise PeerOutdated(
                f"{self.peer!r} runs a release that speaks protocol version {message['version']}, "
                f"and this cluster uses {self._used} since `fifo upgrade finish`; install the "
                f"release of the other nodes on {self.peer!r}",
                self._hello_to(self.peer),
            )
        self._agree(
            message["version"],
            (self.peer, self.peer_incarnation, message["nonce"]),
            (message["to"], identity.incarnation, self._nonce),
        )
        return {
            "type": "challenge",
            "incarnation": identity.incarnation,
            "nonce": self._nonce,
        }
