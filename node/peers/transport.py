"""TCP between the members of a group, on asyncio (raft.md 3.3; b13, b19).

Owns the listener, the dialers and one connection per pair: the member with the greater name
dials. It delivers to one `Receiver` and knows neither terms nor logs; frames are `frames.py`, the
handshake is `handshake.py`. Nothing is read from a
connection but handshake frames until the peer is proven; no frame of a connection that ended
reaches the node. Bytes are handed to the socket inside `send`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from node.journal import limits as journal_limits
from node.peers import limits
from node.peers.accepting import Acceptor, listening_socket
from node.peers.dialing import Dialing, DialingSockets
from node.peers.frames import (
    HANDSHAKE_TYPES,
    JOURNAL_ID_BYTES,
    PROTOCOL_NEWEST,
    PROTOCOL_OF_CHANGES,
    TOLD_TYPES,
    Bytes,
    Decoder,
    FrameInvalid,
    encode,
)
from node.peers.guests import Guests
from node.peers.handshake import (
    DialerSide,
    Identity,
    ListenerSide,
    PeerAnswered,
    PeerRefused,
    PeerTwice,
    new_incarnation,
)
from node.peers.message import MessageRefused, PeerNode
from node.peers.seldom import Seldom
from node.peers.tls import names_in
from node.peers.versions import PeerVersions

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from node.peers.message import Message
    from node.peers.tls import PeerTls

logger = logging.getLogger(__name__)

_OWN_TYPES: Final = frozenset({"versions", "keepalive", "journal", "about", "ask", "members"})
"""Frames between proven nodes of which this module takes note."""

_NOT_OF_RAFT: Final = HANDSHAKE_TYPES | _OWN_TYPES

NO_ANSWER: Final[Message] = {
    "type": "members",
    "reason": "this node is not ready; ask again",
    "configuration": b"",
}
"""The answer to a question of a node whose owner gives none."""


class MemberConfig(Protocol):
    """Fields that the transport reads of a member's configuration (`node.raft.RaftConfig`)."""

    @property
    def name(self) -> str: ...
    @property
    def peers(self) -> Mapping[str, tuple[str, int]]: ...
    @property
    def bind(self) -> tuple[str, int]: ...
    @property
    def cluster_id(self) -> bytes: ...
    @property
    def secret(self) -> bytes | None: ...
    @property
    def tls(self) -> PeerTls | None: ...
    @property
    def connection_seconds(self) -> float: ...


class Receiver(Protocol):
    """Destination of what arrives from the peers (the core of a Raft node is one)."""

    def receive(self, node: PeerNode, message: Message) -> None:
        """Take one message of a proven peer. Raises `MessageRefused` to end the connection."""

    def connected(self, node: PeerNode) -> None:
        """Take note of a connection to `node`, proven by both sides."""

    def disconnected(self, node: PeerNode, *, replaced: bool = False) -> None:
        """Take note that the connection to `node` ended; `replaced`: by a newer one, which follows
        at once."""


@dataclass(slots=True)
class TransportCounters:
    """Counts of events on the peer port since the start of the process."""

    accepted_total: int = 0
    accept_failures_total: int = 0
    frames_invalid_total: int = 0
    peers_refused_total: int = 0
    handshakes_expired_total: int = 0
    handshakes_crowded_out_total: int = 0
    tls_failures_total: int = 0
    connections_replaced_total: int = 0
    connections_silent_total: int = 0
    connections_clogged_total: int = 0
    messages_refused_total: int = 0
    sent_bytes_total: int = 0
    received_bytes_total: int = 0


class PeerLink(asyncio.BufferedProtocol):
    """A connection: bytes, handshake, liveness. Reports its events to the transport."""

    def __init__(self, owner: TcpTransport, side: DialerSide | ListenerSide) -> None:
        self._owner = owner
        self._side = side
        self._decoder = Decoder()
        # Where asyncio receives to: without a call of ours in between.
        self.get_buffer = self._decoder.buffer  # type: ignore[method-assign]
        self._socket: asyncio.Transport | None = None
        self._host = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._heard = False
        self._certified: frozenset[str] | None = None
        self.proven = False
        self._asks = False
        """Whether the other side is here for an answer alone (`asking.py`)."""
        self._is_member = False
        """Whether it is a node whose frames are for Raft."""
        self.node: PeerNode
        """The other side, once it is proven."""
        self.ended = asyncio.get_running_loop().create_future()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the socket to take them."""
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    @property
    def lives(self) -> bool:
        """Whether something was heard within the last second or two."""
        return self._socket is not None and (self._heard or not self._silent_seconds)

    def is_of(self, other: PeerLink) -> bool:
        """Whether both are of one process, as far as such members say."""
        own, its = self._side, other._side
        both_tell = own.peer_tells and its.peer_tells
        return own.peer_incarnation == its.peer_incarnation or not both_tell

    @property
    def peer_tells(self) -> bool:
        """Whether the other side knows the frames of protocol 5."""
        return self._side.peer_tells

    @property
    def peer(self) -> str:
        """Name of the other side; before it is proven, the name it claims."""
        return self._side.peer

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: the dialer speaks first, both have little time."""
        self._socket = cast("asyncio.Transport", transport)
        self._host = str((transport.get_extra_info("peername") or ("",))[0])
        # Zero keeps plain asyncio and uvloop alike: both write at once, neither waits for us.
        self._socket.set_write_buffer_limits(high=0)
        with contextlib.suppress(OSError, AttributeError):
            raw = transport.get_extra_info("socket")
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._deadline = asyncio.get_running_loop().call_later(
            limits.HANDSHAKE_SECONDS, self._expired
        )
        self._owner.link_opened(self)
        if self._owner.with_tls:
            self._certified = names_in(transport.get_extra_info("peercert") or {})
        if isinstance(self._side, DialerSide):
            try:
                self._check_certificate()
            except PeerRefused as error:
                self._owner.counters.peers_refused_total += 1
                self._refuse(error)
                return
            self.send(self._side.hello())

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        if self._socket is None:
            return
        self._heard = True
        owner = self._owner
        counters = owner.counters
        counters.received_bytes_total += nbytes
        try:
            for message in self._decoder.received(nbytes):
                # At once what nearly all of them are: frames of Raft.
                if self._is_member and message["type"] not in _NOT_OF_RAFT:
                    owner.receive(self.node, message)
                else:
                    self._take(message)
                if self._socket is None:
                    return
        except FrameInvalid as error:
            counters.frames_invalid_total += 1
            self._answer_stranger()
            self._refuse(error)
        except PeerRefused as error:
            counters.peers_refused_total += 1
            self._refuse(error)
        except MessageRefused as error:
            counters.messages_refused_total += 1
            self._refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self.close()

    # --- inside ---

    def _take(self, message: Message) -> None:
        handshake = message["type"] in HANDSHAKE_TYPES
        if handshake == self.proven:
            phase = "after" if self.proven else "during"
            raise FrameInvalid(f"unexpected {message['type']} {phase} the handshake")
        if self.proven:
            self._take_own(message)
            return
        answer, proven = self._side.received(message)
        self._check_certificate()
        if answer is not None:
            self.send(answer)
        if proven:
            self.proven = self._decoder.trusted = True
            self._is_proven()

    def _is_proven(self) -> None:
        self._watch()
        if isinstance(self._side, ListenerSide) and self._side.asks:
            self._asks = True
            self._owner.question_proven(self)
            return
        self._owner.link_proven(self)
        self._is_member = True
        if self._side.peer_tells:
            self.send(self._owner.versions.frame)
        else:
            self._owner.link_said(self, None)

    def _take_own(self, message: Message) -> None:
        """Take a frame that is not for Raft, or not for it alone."""
        kind = message["type"]
        if self._asks:
            if kind == "ask":
                self._leave(*encode(self._owner.answer()))
                self.close()
            elif kind != "keepalive":
                raise FrameInvalid(f"unexpected {kind} on a connection for a question")
        elif kind == "versions":
            self._owner.link_said(self, message)
        elif kind == "about":
            self._owner.guests.said(self, message)
        elif kind == "journal":
            self._owner.guests.said(self, message)
            self._owner.receive(self.node, message)
        elif kind != "keepalive":
            raise FrameInvalid(f"unexpected {kind} between members")

    def _check_certificate(self) -> None:
        """With TLS, the other side is who it says only if its certificate says so too."""
        if self._certified is not None and self.peer and self.peer not in self._certified:
            found = ", ".join(sorted(self._certified)) or "no member"
            raise PeerRefused(
                f"the certificate is of {found}, must be of {self.peer!r}; give each node a "
                "certificate in its own name"
            )

    def _answer_stranger(self) -> None:
        """Leave a word for a client of the queue that took this for the client port."""
        if not self.proven and isinstance(self._side, ListenerSide):
            self._leave(self._owner.stranger_answer)

    def _leave(self, *last: Bytes) -> None:
        """Close behind these bytes: `close` aborts, and would drop them."""
        transport, self._socket = self._socket, None
        if transport is not None:
            transport.writelines(last)
            transport.close()

    def _refuse(self, error: Exception) -> None:
        once = not self.proven or isinstance(error, PeerTwice)  # It dials again at once.
        if not once or self._owner.may_log_refusal(self._host):
            logger.warning("raft: closing the connection of peer %s: %s", self.peer or "?", error)
        if isinstance(error, PeerAnswered):
            self._leave(*encode(error.answer))
        self.close()

    def _expired(self) -> None:
        self._owner.counters.handshakes_expired_total += 1
        self.close()

    def _watch(self) -> None:
        """Show that this side lives, and see whether the other did."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._silent_seconds = 0.0
        self._heard = True
        self._watch_again()

    def _watch_again(self) -> None:
        if self._socket is None:
            return
        self._silent_seconds = 0.0 if self._heard else self._silent_seconds + self._pause
        self._heard = False
        if self._silent_seconds >= self._owner.connection_seconds:
            self._owner.counters.connections_silent_total += 1
            self.close()
            return
        self.send({"type": "keepalive"})
        self._deadline = asyncio.get_running_loop().call_later(self._pause, self._watch_again)

    @property
    def _pause(self) -> float:
        return min(limits.KEEPALIVE_SECONDS, self._owner.connection_seconds / 4)

    # --- for the transport ---

    def send(self, message: Message) -> bool:
        """Write one message. False when the connection is gone."""
        if self._socket is None:
            return False
        transport = self._socket
        buffers, size = self._owner.encoded(message)
        self._owner.counters.sent_bytes_total += size
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)
        if transport.get_write_buffer_size() > limits.UNSENT_BYTES_MAX:
            self._owner.counters.connections_clogged_total += 1
            self.close()
            return False
        return True

    def dismiss(self) -> None:
        """End the connection behind what was sent on it."""
        self._leave()
        self.close()

    def close(self) -> None:
        """End the connection now; bytes that are not sent yet are dropped. Idempotent."""
        transport, self._socket = self._socket, None
        if self._deadline is not None:
            self._deadline.cancel()
        if transport is not None:
            transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)
            self._owner.link_ended(self)


Link = TypeVar("Link", bound=PeerLink)


class TcpTransport:
    """The connections of one member. Made before its `RaftNode`, started and closed by it."""

    def __init__(
        self,
        config: MemberConfig,
        *,
        rng: random.Random,
        entropy: Callable[[int], bytes] = os.urandom,
        dialing: Callable[[str, int], Dialing] = DialingSockets,
        stranger_answer: bytes = b"",
    ) -> None:
        """`rng` spreads reconnects; `entropy` gives nonces, and must not be predictable; `dialing`
        makes what dials the member at an address.

        `stranger_answer`: the last bytes for a connection that speaks another protocol.
        """
        self.stranger_answer = stranger_answer
        self._refusals = Seldom(lambda: asyncio.get_running_loop().time())
        self._config = config
        self._receiver: Receiver
        self.receive: Callable[[PeerNode, Message], None]
        """Takes a frame of a proven peer, on the one connection that counts: an older one is
        closed, and takes nothing any more."""
        self._rng = rng
        self._entropy = entropy
        self._dialing = dialing
        self._identity = Identity(
            name=config.name,
            cluster_id=config.cluster_id,
            secret=config.secret or b"",
            incarnation=new_incarnation(entropy),
        )
        self._followed = dict(config.peers)
        self._links: dict[str, PeerLink] = {}
        self._unproven: dict[PeerLink, None] = {}
        tls = config.tls
        self._listening_tls = None if tls is None else tls.listening()
        self._dialing_tls = None if tls is None else tls.dialing()
        self._dialers: dict[str, asyncio.Task[None]] = {}
        self._started = False
        self._acceptor: Acceptor | None = None
        self._last_sent: Message = {}
        self._last_encoded: tuple[list[Bytes], int] = [], 0
        self.address = ("", 0)
        """Where it listens (the port is the real one where 0 was asked for)."""
        self._closing = False
        self.connection_seconds = config.connection_seconds
        self.versions = PeerVersions()
        self.guests = Guests()
        self.about: Message | None = None
        """The frame with the addresses of a node that joins: it dials every member, and says this
        of itself. None for a member."""
        self.answer: Callable[[], Message] = lambda: NO_ANSWER
        """Makes the answer to a node that asks for the configuration."""
        self.counters = TransportCounters()

    # --- for its node ---

    def attach(self, receiver: Receiver) -> None:
        """Deliver messages and connection changes to `receiver`. Call before `start`."""
        self._receiver = receiver
        self.receive = receiver.receive

    def send(self, node: PeerNode, message: Message) -> bool:
        """Write to the connection of `node`. False when there is none."""
        link = self._links.get(node.id)
        if link is None or (message["type"] in TOLD_TYPES and not link.peer_tells):
            return False
        return link.send(message)

    def tells(self, node: PeerNode) -> bool:
        """Whether the member on the connection to `node` knows the frames of protocol 5."""
        link = self._links.get(node.id)
        return link is not None and link.peer_tells

    def follow(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Have connections with these members from now on, and no others: `addresses` of the other
        members by name. Connections to those that are gone end behind what was sent on them; one to
        a member that has moved is kept until it ends."""
        gone = self._followed.keys() - addresses.keys()
        self._followed = dict(addresses)
        for name in gone:
            dialer = self._dialers.pop(name, None)
            link = self._links.get(name)
            if link is not None:
                link.dismiss()
            if dialer is not None:
                dialer.cancel()
        for name in addresses:
            self.guests.now_member(name)
        if self._started:
            self._dial_members()

    async def dial_as(
        self,
        make: Callable[[TcpTransport, DialerSide], Link],
        address: tuple[str, int],
    ) -> Link:
        """A connection to whichever node listens at an address, for a question (`asking.py`); not
        proven yet. Raises OSError."""
        side = DialerSide(self._identity, self._entropy, "", PROTOCOL_NEWEST)
        with contextlib.closing(self._dialing(*address)) as dialing:
            return await dialing.connect(lambda: make(self, side), self._dialing_tls)

    def unsent_bytes(self, node: PeerNode) -> int:
        """Bytes for `node` that wait for its socket; 0 where there is no connection."""
        link = self._links.get(node.id)
        return 0 if link is None else link.unsent_bytes

    def may_log_refusal(self, host: str) -> bool:
        """Whether a refusal of an unproven connection from this address is logged; the counters
        count all."""
        return self._refusals.may(host)

    @property
    def handshakes(self) -> int:
        """Number of connections whose peer is not proven yet."""
        return len(self._unproven)

    def encoded(self, message: Message) -> tuple[list[Bytes], int]:
        """The bytes of a message, which does not change any more, and their number. Those of the
        last one are kept: a leader sends the same entries to one peer after the other."""
        if message is not self._last_sent:
            buffers = encode(message)
            size = sum(map(len, buffers))
            if size <= journal_limits.JOIN_BYTES and len(buffers) > 1:
                buffers = [b"".join(buffers)]
            self._last_sent, self._last_encoded = message, (buffers, size)
        return self._last_encoded

    def use_protocol(self, version: int) -> None:
        """Speak this protocol from now on, or a later one that is used already; members that
        cannot are disconnected."""
        self.versions.used = max(self.versions.used, version)
        for link in list(self._links.values()):
            # Of one that is yet to say what it can `link_said` judges.
            if link.peer in self.versions.heard and not self.versions.may_stay(link.peer):
                logger.warning(
                    "event=peer_outdated node=%s advice=install the release of the other nodes",
                    link.peer,
                )
                link.close()

    # --- life ---

    def renew_tls(self, tls: PeerTls) -> None:
        """Show and trust other certificates from the next connection on.

        Raises CertificateUnusable, and then changes nothing.
        """
        self._listening_tls, self._dialing_tls = tls.listening(), tls.dialing()

    @property
    def with_tls(self) -> bool:
        """Whether every connection is TLS with a certificate on both sides."""
        return self._listening_tls is not None

    async def start(self) -> None:
        """Bind the configured address and no other, begin to accept and to dial.

        Raises OSError where the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        host, port = self._config.bind
        family, _, _, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        listener = listening_socket(family, address)
        self.address = listener.getsockname()[:2]
        self._acceptor = Acceptor(
            self._take_in,
            under_way_max=limits.UNAUTHENTICATED_MAX,
            crowded_out=partial(self._count, "handshakes_crowded_out_total"),
            failed=self._out_of_descriptors,
            spares=len(self._dialing_us),
        )
        self._acceptor.watch(listener)
        self._started = True
        self._dial_members()

    async def close(self) -> None:
        """End listener, dialers and connections. Idempotent."""
        self._closing, self._started = True, False
        taken_in = [] if self._acceptor is None else self._acceptor.close()
        for task in self._dialers.values():
            task.cancel()
        await asyncio.gather(*self._dialers.values(), *taken_in, return_exceptions=True)
        self._dialers.clear()
        for link in [*self._links.values(), *self._unproven]:
            link.close()

    # --- listening and dialing ---

    def _count(self, counter: str) -> None:
        setattr(self.counters, counter, getattr(self.counters, counter) + 1)

    def _out_of_descriptors(self) -> None:
        """An accept failed: the stranger that is unproven for longest leaves its descriptor."""
        self.counters.accept_failures_total += 1
        if self._unproven:
            next(iter(self._unproven)).close()

    def listener_side(self) -> ListenerSide:
        """The handshake of an accepted connection."""
        return ListenerSide(self._identity, self._entropy, self._dialing_us, self.versions.used)

    @property
    def _dialing_us(self) -> frozenset[str]:
        """The members that dial this one: those with a greater name."""
        return frozenset(name for name in self._followed if name > self._config.name)

    async def _take_in(self, accepted: socket.socket, _peer: object) -> None:
        """An accepted socket becomes a connection; with TLS, once both sides are verified."""
        self.counters.accepted_total += 1
        loop = asyncio.get_running_loop()
        side = self.listener_side()
        tls = self._listening_tls
        patience = None if tls is None else limits.HANDSHAKE_SECONDS
        try:
            await loop.connect_accepted_socket(
                partial(PeerLink, self, side), accepted, ssl=tls, ssl_handshake_timeout=patience
            )
        except OSError as error:
            accepted.close()
            self.counters.tls_failures_total += tls is not None
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            logger.warning("raft: a peer was gone before it was accepted: %s", reason)

    def _dial_members(self) -> None:
        """Keep dialing each member, and be ready for those that dial here."""
        loop = asyncio.get_running_loop()
        for name in self._followed:
            if name not in self._dialers:
                self._dialers[name] = loop.create_task(self._dial(name))
        if self._acceptor is not None:
            self._acceptor.keep_spares(len(self._dialing_us))

    async def _dial(self, name: str) -> None:
        """Keep one connection to a peer, wherever it is, with a growing pause between failures."""
        pause = limits.DIAL_RETRY_SECONDS_MIN
        while True:
            address = self._followed[name]
            with contextlib.closing(self._dialing(*address)) as dialing:
                while self._followed[name] == address:
                    await self._until_due(name)
                    pause = await self._keep_connection(name, dialing, pause)

    async def _until_due(self, name: str) -> None:
        """Wait while there is a connection to a peer, or while it is for the peer to dial."""
        while True:
            link = self._links.get(name)
            if link is not None:
                await asyncio.wait((link.ended,))
            elif name < self._config.name or self.about is not None:
                return
            else:
                await asyncio.sleep(limits.DIAL_OTHERWISE_SECONDS)
                if name not in self._links and self.versions.used >= PROTOCOL_OF_CHANGES:
                    return

    async def _keep_connection(self, name: str, dialing: Dialing, pause: float) -> float:
        """Dial once, and wait for the end of the connection; the pause before the next one."""
        link = await self._dial_once(name, dialing)
        if link is not None:
            try:
                await dialing.keep_one(link.ended)
            finally:
                link.close()
            if link.proven:
                pause = limits.DIAL_RETRY_SECONDS_MIN
        await asyncio.sleep(pause * (0.5 + self._rng.random()))
        return min(2 * pause, limits.DIAL_RETRY_SECONDS_MAX)

    async def _dial_once(self, name: str, dialing: Dialing) -> PeerLink | None:
        """A connection to a peer, not proven yet; None where it is not there."""
        side = DialerSide(self._identity, self._entropy, name, self.versions.used)
        try:
            async with asyncio.timeout(limits.DIAL_SECONDS):
                return await dialing.connect(partial(PeerLink, self, side), self._dialing_tls)
        except ssl.SSLError as error:
            self.counters.tls_failures_total += 1
            logger.warning("raft: dialing %s: TLS failed: %s", name, error.reason or error)
        except OSError:
            pass  # It is not there yet: dialed again by the caller.
        return None

    # --- what links tell ---

    def link_opened(self, link: PeerLink) -> None:
        """A connection without a proof yet; there is room for a few of them only."""
        self._unproven[link] = None
        if len(self._unproven) > limits.UNAUTHENTICATED_MAX:
            self.counters.handshakes_crowded_out_total += 1
            next(iter(self._unproven)).close()

    def link_proven(self, link: PeerLink) -> None:
        """A member is there. An older connection of the same pair ends first."""
        self._unproven.pop(link, None)
        node = PeerNode(link.peer)
        self._refuse_another(link)
        older = self._links.pop(link.peer, None)
        if older is not None:
            self.counters.connections_replaced_total += 1
            older.close()
            self._receiver.disconnected(node, replaced=True)
        self._links[link.peer] = link
        self.versions.heard.discard(link.peer)
        link.node = node
        if link.peer not in self._followed:
            self.guests.came(link)
        if self.about is not None and link.peer_tells:
            link.send(self.about)
        self._receiver.connected(node)

    def question_proven(self, link: PeerLink) -> None:
        """A connection for a question is proven: it is not one of a pair."""
        self._unproven.pop(link, None)

    def _refuse_another(self, link: PeerLink) -> None:
        """Raise `PeerTwice` for another process of a member whose connection lives: the one that
        comes later is the copy. Of one that died without a word the connection soon does not."""
        older = self._links.get(link.peer)
        if older is None or not older.lives or older.is_of(link):
            return
        raise PeerTwice(
            f"another process of {link.peer!r} is connected and lives; stop one of the two, and if "
            "the other is a copy, remove its folder",
            {
                "type": "verdict",
                "kind": limits.VERDICT_TWICE,
                "journal": bytes(JOURNAL_ID_BYTES),
                "open_id": bytes(JOURNAL_ID_BYTES),
                "reason": "another process of this member is connected and lives",
            },
        )

    def link_said(self, link: PeerLink, message: Message | None) -> None:
        """A proven peer says what it can, or is one that does not. Raises `PeerRefused` where it
        cannot speak what is used."""
        self.versions.said(link.peer, message)
        if not self.versions.may_stay(link.peer):
            raise PeerRefused(
                f"{link.peer!r} does not speak protocol version {self.versions.used}, which this "
                f"cluster uses; install the release of the other nodes on {link.peer!r}"
            )

    def link_ended(self, link: PeerLink) -> None:
        """A connection ended; if it was the one of its pair, the node hears of it."""
        self._unproven.pop(link, None)
        self.guests.gone(link)
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            self.versions.heard.discard(link.peer)
            if not self._closing:
                self._receiver.disconnected(link.node)
