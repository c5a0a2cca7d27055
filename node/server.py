"""One node of a cluster: a process's parts, started, turned and stopped in order.

Owns the loop's turn (decisions.md, "The batching policy"): what clients sent is gathered,
handed to Raft, which appends, replicates and applies; answers and deliveries leave before the
turn's last disk sync. Turns are asked for by whoever has work, at most one at a time, and by a
timer; what was answered without an entry leaves without one. Must not know what a request means:
`broker.py` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from node.broker import limits
from node.broker.broker import Broker
from node.broker.connections.authentication import Authentication
from node.broker.connections.connection import Connection
from node.broker.connections.descriptors import connections_max
from node.broker.connections.handshake import Identity
from node.broker.connections.listener import Listener, Listening, MakePort
from node.broker.connections.tls import client_context, show_certificate
from node.collector import Collector
from node.config import ClusterConfig, NodeConfig
from node.peers.tls import CertificateUnusable
from node.raft import (
    Journal,
    JournalLimits,
    OsStorage,
    PeerTls,
    RaftConfig,
    RaftError,
    RaftNode,
    RaftStatus,
    RaftStopped,
    Storage,
    TcpTransport,
    TransferRefused,
    Worker,
    WorkerThread,
    boot_clock,
    check_members,
)
from node.table import ConfigError

logger = logging.getLogger(__name__)


class NodeStopped(Exception):
    """The node cannot go on; `reason` is one line for the log, and the process should end."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Service(Protocol):
    """A listener beside the client port that lives as long as the node: its http port."""

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""

    async def stop(self) -> None:
        """Stop listening; harmless where it never did."""


HttpFactory: TypeAlias = Callable[["Node"], Service]
"""Makes the http port of a node."""


def tcp(config: RaftConfig, rng: random.Random) -> TcpTransport:
    """The peer port on the running loop's sockets."""
    return TcpTransport(config, rng=rng)


class Node:
    """A node of the cluster that `config` describes; one per process, or several in a test."""

    def __init__(
        self,
        config: ClusterConfig,
        name: str,
        *,
        clock: Callable[[], float] = boot_clock,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        http: HttpFactory | None = None,
        storage: Callable[[Path], Storage] = OsStorage,
        transport: Callable[[RaftConfig, random.Random], TcpTransport] = tcp,
        offload: Callable[[str], Worker] = WorkerThread,
        listener: MakePort = Listener,
        journal_limits: JournalLimits | None = None,
        disk_clock: Callable[[], float] = time.perf_counter,
        recover: bool = False,
        collector: Collector | None = None,
    ) -> None:
        """`clock` is monotonic and counts suspended time, `wall` is for people; both in seconds.

        `http` makes the http port (`node.http.server.HttpServer`); None: this node has none.
        `storage` opens the journal's folder, `transport` makes the peer port, `offload` what does
        blocking work beside the loop, by the name of its thread; `listener` makes the client
        port; `journal_limits` sizes the journal's files and cache (None: as usual), `disk_clock`
        measures its syncs. With `recover` a journal that is damaged or missing is started over,
        from the other members. `collector` is the process's, told when there is time for garbage;
        None: it collects as Python does by itself.
        """
        self.config = config
        self.me = config.node(name)
        self._clock = clock
        self._wall = wall
        self._rng = random.Random() if rng is None else rng
        self._storage = storage
        self._transport = transport
        self._offload = offload
        self._journal_limits = journal_limits
        self._disk_clock = disk_clock
        self._recover = recover
        self.collector = collector
        self._loop: asyncio.AbstractEventLoop
        self._make_listener = listener
        self._listener: Listening | None = None
        self._raft: RaftNode | None = None
        self._peer_port: TcpTransport | None = None
        self._client_contexts: list[ssl.SSLContext] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = self._turn_due = 0.0
        self._turn_asked = False
        self._in_turn = False
        self._stopping = False
        self._stopped: asyncio.Future[None]
        self._looked_at = clock()
        self._swept_at = clock()
        self._ended: str | None = None
        nodes = tuple((node.name, str(node.client)) for node in config.nodes)
        own = config.limits
        identity = Identity(
            node=name,
            cluster_id=config.cluster_id,
            nodes=nodes,
            limits=(("body_bytes", own.body_bytes), ("prefetch", own.prefetch)),
        )
        self._emptied = asyncio.Event()
        self._resigned = asyncio.Event()
        self.authentication = Authentication(
            config.users,
            now=clock,
            call_later=lambda delay, callback: self._loop.call_later(delay, callback),
            thread=lambda: self._offload("logins"),
        )
        self.broker = Broker(
            identity,
            own,
            now=clock,
            wall_ms=lambda: int(wall() * 1000),
            wake=self._ask_turn,
            wake_within=self._turn_within,
            flush_soon=self._ask_flush,
            emptied=self._emptied.set,
            authentication=self.authentication,
            connections_max=connections_max(),
            taken_over=self._taken_over,
        )
        self._http = None if http is None else http(self)

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the journal, listen, begin to take part. Raises RaftError or OSError, and then
        leaves nothing open."""
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        logger.info(
            "fifo node %s ready client=%s peer=%s http=%s",
            self.me.name,
            self.me.client,
            self.me.peer,
            self.me.http,
        )

    async def _start(self) -> None:
        context = self.client_context()
        raft_config = self._raft_config()
        if self._recover:
            check_members(self.me.name, raft_config.peers)
        journal = Journal.open(
            self._storage(self.me.data_dir),
            cluster_id=self.config.cluster_id,
            node=self.me.name,
            limits=self._journal_limits,
            clock=self._disk_clock,
            recover=self._stamp() if self._recover else None,
        )
        try:
            transport = self._peer_port = self._transport(raft_config, self._rng)
            self._raft = RaftNode(
                raft_config,
                journal=journal,
                transport=transport,
                clock=self._clock,
                rng=self._rng,
                apply=self.broker.apply,
                before_sync=self.broker.carry_out,
                wake=self._ask_turn,
                on_role=self._on_role,
                offload=self._offload("syncs"),
                background=self._offload("snapshots"),
                reads=self._offload("reads"),
                source=self.broker.host,
            )
        except BaseException:
            journal.close()
            raise
        self.broker.attach(self._raft)
        await self._raft.start()
        self._listener = self._make_listener(context, self._accept)
        await self._listener.start(self.me.client.host, self.me.client.port)
        if self._http is not None:
            await self._http.start()
        self._ask_turn()
        self._house_keeping()

    def _stamp(self) -> str:
        """Now, for names of files."""
        return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._wall()))

    def reload(self, config: ClusterConfig) -> None:
        """Take the users and the certificates of a file that was read again; the rest waits for a
        restart. Raises ConfigError, and then everything stays as it was."""
        if bool(config.users) != bool(self.config.users):
            raise ConfigError("[[user]]: the first users, or none any more, need a restart")
        files = [
            None if tls is None else (tls.client_cert is None, tls.peer_cert is None)
            for tls in (config.tls, self.config.tls)
        ]
        if files[0] != files[1]:
            raise ConfigError("[tls]: beginning or ending encryption needs a restart")
        new = replace(self.config, users=config.users, tls=config.tls)
        name = self.me.name
        if new.tls is not None and new.tls.client_cert is not None:
            client_context(new.tls, name)  # both files are tried before one in use is changed
        peer_tls = _peer_tls(new, name)
        if peer_tls is not None and self._peer_port is not None:
            try:
                self._peer_port.renew_tls(peer_tls)
            except CertificateUnusable as error:
                raise ConfigError(str(error)) from None
        for context in self._client_contexts:
            assert new.tls is not None, "there are contexts only where there are certificates"
            show_certificate(context, new.tls, name)
        self.config = new
        self.authentication.replace(new.users)
        self.broker.users_replaced()
        logger.info("event=reloaded users=%d", len(new.users))

    def client_context(self) -> ssl.SSLContext | None:
        """What encrypts the client port, None where it is plain. Raises ConfigError."""
        tls = self.config.tls
        if tls is not None and tls.client_cert is not None:
            context = client_context(tls, self.me.name)
            self._client_contexts.append(context)
            return context
        if not self.me.client.is_loopback:
            logger.warning(
                "event=plain_client_port address=%s advice=set client_cert and client_key in [tls]:"
                " passwords and messages travel unencrypted",
                self.me.client,
            )
        return None

    def _raft_config(self) -> RaftConfig:
        config = self.config
        return RaftConfig(
            name=self.me.name,
            peers={
                node.name: (node.peer.host, node.peer.port) for node in config.peers(self.me.name)
            },
            bind=(self.me.peer.host, self.me.peer.port),
            cluster_id=config.cluster_id,
            secret=config.secret,
            tls=_peer_tls(config, self.me.name),
            heartbeat_seconds=config.raft.heartbeat_ms / 1000,
            min_timeout_seconds=config.raft.election_min_ms / 1000,
            max_timeout_seconds=config.raft.election_max_ms / 1000,
            connection_seconds=config.raft.connection_timeout_ms / 1000,
            snapshot_bytes=config.raft.snapshot_bytes,
        )

    def _accept(self) -> Connection:
        return Connection(self.broker, self._clock, self.config.limits.in_flight_publishes)

    async def run(self) -> None:
        """Until `stop`, or until the node cannot go on: then raises NodeStopped."""
        await asyncio.shield(self._stopped)
        if self._ended is not None:
            await self._close()
            raise NodeStopped(self._ended)

    async def stop(self) -> None:
        """End in order: a leader hands over, clients are told to go elsewhere, the journal is
        closed."""
        if self._raft is None:
            return
        await self._hand_over()
        self._stopping = True
        self.broker.close_all()
        if self.broker.connection_count:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), limits.STOP_SECONDS)
        await self._close()
        if not self._stopped.done():
            self._stopped.set_result(None)
        logger.info("event=stopped node=%s", self.me.name)

    async def _hand_over(self) -> None:
        """Let another member lead before this one goes: its clients then wait for milliseconds
        instead of an election timeout. Where that fails, the others find out by themselves."""
        raft = self._raft
        if raft is None or self._stopping or (target := raft.successor()) is None:
            return
        self._resigned.clear()

        def failed(reason: str) -> None:
            logger.warning("event=transfer_failed target=%s reason=%s", target, reason)
            self._resigned.set()

        with contextlib.suppress(TimeoutError, TransferRefused):
            raft.transfer(target, failed)
            logger.info("event=transfer target=%s term=%d", target, raft.term)
            await asyncio.wait_for(self._resigned.wait(), limits.HAND_OVER_SECONDS)

    def _on_role(self, role: str, term: int) -> None:
        self.broker.on_role(role, term)
        if role != "leader":
            self._resigned.set()

    async def crash(self) -> None:
        """End without a word to anybody, as far as one process can: for tests of what follows."""
        await self._close()

    @property
    def leads(self) -> bool:
        """Whether this node leads, and has applied its own `lead`."""
        return self.broker.led and not self._stopping

    async def _close(self) -> None:
        """Let go of everything that is open."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._http is not None:
            await self._http.stop()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.broker.abort_all()
        self.authentication.close()
        raft, self._raft = self._raft, None
        if raft is not None:
            await raft.close()

    # --- turns ------------------------------------------------------------------------------------

    def _ask_turn(self) -> None:
        """Somebody has work for the loop: one turn soon, however often this is asked."""
        if not self._turn_asked and not self._stopping:
            self._turn_asked = True
            if not self._in_turn:
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """One turn, and the timer for the next. Nothing that happens here may be lost silently."""
        raft = self._raft
        if raft is None or self._stopping:
            return
        self._in_turn = True
        try:
            self.broker.before_turn()
            # What was handed over up to here is seen to in this very turn.
            self._turn_asked = False
            delay = raft.turn()
            self.broker.after_turn()
        except RaftStopped as stopped:
            self._end(stopped.reason)
            return
        except Exception as error:
            self._fail("turn", error)
            return
        finally:
            self._in_turn = False
        self._arm(delay)

    def _arm(self, delay: float) -> None:
        """The next turn: at once where this one asked for it, else by timer."""
        if self._turn_asked or not delay:
            self._turn_asked = True
            self._loop.call_soon(self._turn)
            return
        gathered = self.broker.wait()
        if gathered is not None:
            delay = min(delay, gathered)
        self._turn_due = self._loop.time() + delay
        self._set_timer()

    def _turn_within(self, seconds: float) -> None:
        """Somebody has work for the loop that may wait so long for another reason to turn."""
        due = self._loop.time() + seconds
        if due < self._turn_due and not self._stopping:
            self._turn_due = due
            self._set_timer()

    def _set_timer(self) -> None:
        """See that the loop looks when the next turn is due. A timer that rings before is left as
        it is: most turns come long before theirs, and a new one in each would cost more."""
        if self._timer is not None:
            if self._timer_due <= self._turn_due:
                return
            self._timer.cancel()
        self._timer_due = self._turn_due
        # Timers under a millisecond fire at once on uvloop, and the loop would spin.
        delay = max(self._turn_due - self._loop.time(), limits.TIMER_SECONDS_MIN)
        self._timer = self._loop.call_later(delay, self._time_up)

    def _time_up(self) -> None:
        self._timer = None
        if self._turn_due - self._loop.time() < limits.TIMER_SECONDS_MIN:
            self._ask_turn()
        elif not self._stopping:
            self._set_timer()

    # --- beside the turns -------------------------------------------------------------------------

    def _ask_flush(self) -> None:
        """Something waits to be sent; a turn that was asked for sends it too."""
        if not self._turn_asked and not self._stopping:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what was answered since the last turn: pongs, renewals, refusals."""
        if self._stopping:
            return
        try:
            self.broker.flush()
        except Exception as error:
            self._fail("flush", error)

    def _taken_over(self) -> None:
        if self.collector is not None:
            self.collector.adopt()

    def _house_keeping(self) -> None:
        """The lock clock's look, the sweep of the connections, and garbage, by timer."""
        if self._stopping:
            return
        now = self._clock()
        gap, self._looked_at = now - self._looked_at, now
        try:
            self.broker.look(gap)
            if now - self._swept_at >= limits.SWEEP_SECONDS:
                self._swept_at = now
                self.broker.sweep()
            if self.collector is not None:
                self.collector.look()
        except Exception as error:
            self._fail("house_keeping", error)
            return
        self._loop.call_later(limits.LOOK_SECONDS, self._house_keeping)

    def _fail(self, what: str, error: Exception) -> None:
        logger.exception("event=%s_failed", what, exc_info=error)
        self._end(f"{type(error).__name__}: {error}")

    def _end(self, reason: str) -> None:
        """This node cannot go on: stop acting at once, and tell whoever runs it."""
        logger.error("event=node_failed node=%s reason=%s", self.me.name, reason)
        self._stopping = True
        self._ended = reason
        self._resigned.set()
        self.broker.abort_all()
        if not self._stopped.done():
            self._stopped.set_result(None)

    def raft_status(self) -> RaftStatus | None:
        """How Raft sees this node; None before it runs and after its end."""
        return None if self._raft is None else self._raft.status()

    def leader(self) -> NodeConfig | None:
        """Who leads, as last heard."""
        name = None if self._raft is None else self._raft.leader
        return None if name is None else self.config.node(name)

    def unready(self) -> str | None:
        """Why this node should get no traffic, or None."""
        raft = self._raft
        if raft is None or self._stopping:
            return "stopping"
        waits_for = raft.waits_for()
        if waits_for is not None:
            return f"recovering: waits for {waits_for}"
        if raft.leader is None:
            return "no leader known"
        lag = raft.commit_index - raft.applied_index
        if lag > limits.READY_LAG_ENTRIES:
            return f"{lag} entries behind"
        return None


__all__ = ["Node", "NodeStopped", "RaftError"]


def _peer_tls(config: ClusterConfig, name: str) -> PeerTls | None:
    tls = config.tls
    if tls is None or tls.peer_cert is None:
        return None
    cert, key, ca = (tls.path(f"peer_{what}", name) for what in ("cert", "key", "ca"))
    return PeerTls(cert, key, ca)
