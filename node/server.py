"""The composition root of a node: its parts are made, started and stopped here.

Owns the wiring and the order of a turn of the event loop (decisions.md, "The batching policy"):
requests are gathered and handed to Raft, which appends, replicates and applies; answers and
deliveries leave before the turn's last disk sync. Must not know what a request means: `node.broker`
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fifo.wire import Code, encode
from fifo.wire.messages import Error
from node import certificates
from node.absences import Absences
from node.broker import entry, limits, upgrade
from node.broker.audit import AuditFiles, AuditLog
from node.broker.broker import Broker
from node.broker.connections.authentication import Authentication
from node.broker.connections.connection import Connection
from node.broker.connections.handshake import Identity
from node.broker.connections.listener import (
    Listener,
    Listening,
    MakePort,
    client_context,
    connections_max,
    show_certificate,
)
from node.broker.connections.tickets import Tickets
from node.broker.members import Members
from node.broker.stretches import Stretches
from node.broker.turns import Turns
from node.certificates import CertificateUnreadable
from node.collector import Collector
from node.config import ClusterConfig, NodeConfig, to_toml
from node.identity import JwtSettings
from node.journal import notebook
from node.peers.tls import CertificateUnusable
from node.raft import (
    Configuration,
    Journal,
    JournalLimits,
    Keeper,
    MustRecover,
    OsStorage,
    PeerTls,
    RaftConfig,
    RaftEnvironment,
    RaftError,
    RaftNode,
    RaftStatus,
    RaftStopped,
    RaftWorkers,
    Storage,
    TcpTransport,
    TransferRefused,
    Worker,
    WorkerThread,
    boot_clock,
    check_members,
)
from node.roster import Roster
from node.table import ConfigError

if TYPE_CHECKING:
    from node.broker.connections.jwt_tokens import Tokens

logger = logging.getLogger(__name__)


class NodeStopped(Exception):
    """The node cannot go on; `reason` is one line for the log, and the process should end."""

    def __init__(self, reason: str, *, recovers: bool = False) -> None:
        """`recovers`: its journal was given up, and a new start gets everything back."""
        super().__init__(reason)
        self.reason = reason
        self.recovers = recovers


class Service(Protocol):
    """A listener beside the client port that lives as long as the node: its http port."""

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""

    async def stop(self) -> None:
        """Stop listening; harmless where it never did."""


HttpFactory: TypeAlias = Callable[["Node"], Service]
"""Makes the http port of a node."""


def tcp(config: RaftConfig, rng: random.Random) -> TcpTransport:
    """The peer port on the running loop's sockets; it names a client's mistake to it."""
    text = f"this is the peer port of node {config.name}: connect to a node's client port"
    answer = b"".join(encode(Error(Code.PROTOCOL, text)))
    return TcpTransport(config, rng=rng, stranger_answer=answer)


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything around a node that a simulation replaces. Clocks are in seconds.

    `clock` is monotonic and counts suspended time, `wall` is for people. `rng` spreads events in
    time, `entropy` gives what no client may predict. `storage` opens the journal's folder,
    `transport` makes the peer port, `listener` the client port, and `worker` a worker for blocking
    work off the event loop, by the name of its thread. `journal_limits` sizes the journal's files
    and cache (None: the defaults), `disk_clock` measures its syncs. `audit` makes the files of the
    audit log in a node's folder; None: it keeps none. `stopwatch`
    measures the shares of clients in a turn, `cpu_clock` the CPU time of the loop's thread.
    """

    clock: Callable[[], float] = boot_clock
    wall: Callable[[], float] = time.time
    rng: random.Random = field(default_factory=random.Random)
    entropy: Callable[[int], bytes] = os.urandom
    storage: Callable[[Path], Storage] = OsStorage
    transport: Callable[[RaftConfig, random.Random], TcpTransport] = tcp
    worker: Callable[[str], Worker] = WorkerThread
    listener: MakePort = Listener
    journal_limits: JournalLimits | None = None
    audit: Callable[[Path], AuditFiles | None] = AuditFiles
    disk_clock: Callable[[], float] = time.perf_counter
    stopwatch: Callable[[], float] = time.perf_counter
    cpu_clock: Callable[[], float] = time.thread_time

    def wall_ms(self) -> int:
        """Wall time in milliseconds, for people."""
        return int(self.wall() * 1000)


class Node:
    """A node of the cluster that `config` describes; one per process, or several in a test."""

    def __init__(
        self,
        config: ClusterConfig,
        name: str,
        environment: Environment | None = None,
        *,
        http: HttpFactory | None = None,
        recover: bool = False,
        asks_first: bool = False,
        joins: bool = False,
        collector: Collector | None = None,
    ) -> None:
        """`http` makes the http port (`node.http.server.HttpServer`); None: the node has none.
        With `recover`, a damaged or missing journal is rebuilt from the other members. With
        `asks_first`, a node alone begins nothing in an empty folder unless it was initialized. With
        `joins`, it is no member by its configuration: it waits until the log has it as one.
        `collector` is the process's garbage collector, called between turns; None: Python's own."""
        self.config = config
        self.me = config.node(name)
        self.collector = collector
        self.roster = Roster(config.nodes)
        self._joins = joins
        self._absences = Absences(self.roster.names, name)
        self._env = Environment() if environment is None else environment
        self._recover = recover
        self._asks_first = asks_first
        self._recovers = False
        self._listener: Listening | None = None
        self._raft: RaftNode | None = None
        self._peer_port: TcpTransport | None = None
        self._client_contexts: list[ssl.SSLContext] = []
        self._stopping = False
        self._audit: AuditLog | None = None
        self._notebook: Worker | None = None
        self._members: Members
        self._storage: Storage
        self._stopped: asyncio.Future[None]
        self._ended: str | None = None
        self._looked_at = self._swept_at = self._started_at = self._env.clock()
        self._last_index_at_start = 0
        self._resigned = asyncio.Event()
        self._turns = Turns(self._turn, self._flush)
        self._stretches = Stretches(self._env.cpu_clock)
        self.authentication = self._make_authentication()
        self.broker = self._make_broker()
        self._http = None if http is None else http(self)

    def _make_authentication(self) -> Authentication:
        return Authentication(
            self.config.users,
            now=self._env.clock,
            wall_ms=self._env.wall_ms,
            always=self.config.users_in_log,
            call_later=lambda delay, call: asyncio.get_running_loop().call_later(delay, call),
            thread=lambda: self._env.worker("logins"),
            signed=self._tokens(self.config.jwt),
            tickets=Tickets(self.config.secret, self.config.cluster_id, self._env.wall_ms),
        )

    def _tokens(self, settings: JwtSettings | None) -> Tokens | None:
        """The verifier of an identity provider's tokens. Raises ConfigError without its library."""
        if settings is None:
            return None
        try:  # An extra, and a tenth of a second of imports, which few nodes need.
            from node.broker.connections.jwt_keys import KeyRing
            from node.broker.connections.jwt_tokens import Tokens
        except ImportError:
            text = "[jwt]: needs PyJWT and cryptography: pip install 'fifo-quorum[server,jwt]'"
            raise ConfigError(text) from None
        return Tokens(settings, KeyRing(settings, now=self._env.clock), self._env.wall_ms)

    def _make_broker(self) -> Broker:
        config, limited = self.config, self.config.limits
        return Broker(
            Identity(
                node=self.me.name,
                cluster_id=config.cluster_id,
                roster=self.roster,
                limits=(
                    ("body_bytes", limited.body_bytes),
                    ("prefetch", limited.prefetch),
                    ("in_flight_publishes", limited.in_flight_publishes),
                    ("requests", limits.REQUESTS_IN_FLIGHT_MAX),
                    ("request_bytes", limits.REQUEST_BYTES_IN_FLIGHT_MAX),
                    ("heartbeat_ms_min", limits.HEARTBEAT_MS_MIN),
                    ("heartbeat_ms_max", limits.HEARTBEAT_MS_MAX),
                ),
            ),
            limited,
            now=self._env.clock,
            wall_ms=self._env.wall_ms,
            entropy=self._env.entropy,
            turns=self._turns,
            authentication=self.authentication,
            stopwatch=self._env.stopwatch,
            stretches=self._stretches,
            connections_max=connections_max(),
            taken_over=self._taken_over,
        )

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the journal, listen, and take part in the cluster. Raises RaftError or OSError, and
        then leaves nothing open."""
        self._stopped = asyncio.get_running_loop().create_future()
        self._turns.start()
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
        context = self.client_context(asks=True)
        raft_config = self._raft_config()
        self._show_configuration()
        self.broker.about.keys_problem = self.authentication.keys_problem
        if self._recover:
            check_members(self.me.name, raft_config.peers)
        self._raft = self._open_raft(raft_config)
        files = self._env.audit(self.me.data_dir)
        if files is not None:
            self._audit = AuditLog(files, self._env.worker("audit"))
            self.broker.keep_audit(self._audit, files.open())
        self._last_index_at_start = self._raft.status().last_index
        members = self._make_members(self._raft)
        self.broker.attach(self._raft, self._make_upgrade(), members)
        await self._raft.start()
        self.broker.follow_users()
        self._listener = self._env.listener(context, self._accept, self.config.balancers)
        await self._listener.start(self.me.client.host, self.me.client.port)
        if self._http is not None:
            await self._http.start()
        self._turns.ask()
        self._housekeeping()

    def _make_upgrade(self) -> upgrade.Upgrade:
        """Go on with what this node remembers of what the members can speak."""
        port, storage, raft = self._peer_port, self._storage, self._raft
        assert port is not None, "Raft is open"
        assert raft is not None, "Raft is open"
        self._notebook = self._env.worker("notebook")
        remembered = upgrade.remembered(notebook.read(storage), self.roster.names)
        port.versions.begin(upgrade.own(), upgrade.SILENT, remembered, self._note)
        return upgrade.Upgrade(
            self.me.name,
            lambda: self.roster.names,
            port.versions,
            use_protocol=port.use_protocol,
            uncounted=raft.uncounted,
            automatic=self.config.upgrade_automatic,
        )

    def _note(self) -> None:
        """Note what this node knows of the others."""
        port, worker = self._peer_port, self._notebook
        if port is None or worker is None:
            return
        notes = {upgrade.NOTES: upgrade.noted(port.versions.known), **self._members.notes()}

        def ended(error: BaseException | None) -> None:
            if error is not None:
                logger.warning("event=notebook_not_written error=%s", error)

        worker.run(partial(notebook.write, self._storage, notes), ended)

    def _make_members(self, raft: RaftNode) -> Members:
        """Go by the newest configuration of the log, or by the file where it has none."""
        port = self._peer_port
        assert port is not None, "Raft is open"
        machine = self.broker.host
        self._members = Members(
            self.me, self.roster, raft, port.guests.waiting, lambda: machine.machine.version
        )
        self._members.compare_with_file(joins=self._joins)
        port.answer = self._members.answer
        if self._joins:
            port.about = self._members.about()
        self._take_members(raft.configuration)
        return self._members

    def _on_configuration(self, configuration: Configuration) -> None:
        """The log has another configuration: looked at behind what it is in the midst of."""
        asyncio.get_running_loop().call_soon(self._take_members, configuration)

    def _take_members(self, configuration: Configuration) -> None:
        before = self.roster.clients
        self._members.take(configuration)
        if self.roster.clients != before:
            self.broker.tell_members()
        self._show_configuration()
        self._absences = Absences({*self.roster.names, self.me.name}, self.me.name)
        self._note()

    def _open_raft(self, config: RaftConfig) -> RaftNode:
        env = self._env
        self._storage = env.storage(self.me.data_dir)
        journal = Journal.open(
            self._storage,
            cluster_id=self.config.cluster_id,
            node=self.me.name,
            limits=env.journal_limits,
            clock=env.disk_clock,
            recover=self._stamp() if self._recover else None,
            keeper=Keeper(
                env.entropy,
                self._stamp,
                # A node alone has no other to ask; nor has it one that would forget its promises.
                begins=len(self.config.nodes) == 1 and not self._asks_first,
                adopts=len(self.config.nodes) == 1,
                members=() if self._joins else tuple(node.name for node in self.config.nodes),
            ),
        )
        try:
            self._check_alone(journal)
            transport = self._peer_port = env.transport(config, env.rng)
            raft = RaftNode(config, self._raft_environment(journal, transport))
            self._check_founders(journal, raft)
            return raft
        except BaseException:
            journal.close()
            raise

    def _check_alone(self, journal: Journal) -> None:
        """A node alone has no other to ask what an empty or copied folder stands for."""
        papers = journal.passport
        if len(self.config.nodes) > 1 or papers is None:
            return
        if not papers.begun:
            raise RaftStopped(
                f"the folder {self.me.data_dir} is empty, and there is no other node to ask "
                "whether it held messages: put the disk back that it had, or begin with `fifo "
                f"cluster init --config FILE --node {self.me.name}`; a node of a cluster that runs "
                "joins it: `fifo serve --join`"
            )

    def _check_founders(self, journal: Journal, raft: RaftNode) -> None:
        """While the log names no members, each node goes by its file: with another list in some of
        the files, two halves of a cluster could each be a majority."""
        papers = journal.passport
        if papers is None or not papers.begun or raft.configuration.number or self._joins:
            return
        named = sorted(node.name for node in self.config.nodes)
        if papers.founders and named != sorted(papers.founders):
            raise RaftStopped(
                f"this cluster began with the members {', '.join(sorted(papers.founders))}, and "
                f"the file names {', '.join(named)}: members are changed while the cluster runs, "
                "by `fifo member add`, `remove` or `replace`, and never by the file; put its list "
                'of nodes back (docs/operating.md, "Members")'
            )

    def _raft_environment(self, journal: Journal, transport: TcpTransport) -> RaftEnvironment:
        env = self._env
        return RaftEnvironment(
            journal=journal,
            transport=transport,
            clock=env.clock,
            rng=env.rng,
            apply=self.broker.apply,
            skip=self.broker.skip,
            before_sync=self.broker.carry_out,
            wake=self._turns.ask,
            on_role=self._on_role,
            on_configuration=self._on_configuration,
            source=self.broker.host,
            replay=self.broker.replay,
            workers=RaftWorkers(
                syncs=env.worker("syncs"),
                snapshots=env.worker("snapshots"),
                reads=env.worker("reads"),
                notes=env.worker("notes"),
            ),
        )

    def _stamp(self) -> str:
        """The wall time, for names of files."""
        return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._env.wall()))

    def reload(self, config: ClusterConfig) -> None:
        """Take over users and certificates of a configuration that was read again; all other keys
        need a restart. Raises ConfigError, and then nothing has changed."""
        if self.broker.users_in_log and config.users not in ((), self.config.users):
            raise ConfigError(
                "[[user]]: the users are in the log since they were imported: remove these sections"
                " and change users by `fifo user`"
            )
        if not self.broker.users_in_log and bool(config.users) != bool(self.config.users):
            raise ConfigError(
                "[[user]]: adding the first user or removing the last needs a restart"
            )
        if (config.jwt is None) != (self.config.jwt is None):
            raise ConfigError("[jwt]: adding or removing the section needs a restart")
        files = [
            None if tls is None else (tls.client_cert is None, tls.peer_cert is None)
            for tls in (config.tls, self.config.tls)
        ]
        authorities = [
            None if tls is None else tls.client_ca for tls in (config.tls, self.config.tls)
        ]
        if authorities[0] != authorities[1]:
            raise ConfigError("[tls] client_ca: another file of authorities needs a restart")
        if files[0] != files[1]:
            raise ConfigError("[tls]: enabling or disabling encryption needs a restart")
        new = replace(self.config, users=config.users, tls=config.tls, jwt=config.jwt)
        name = self.me.name
        if new.tls is not None and new.tls.client_cert is not None:
            client_context(new.tls, name)  # both files are checked before a context in use changes
        peer_tls = _peer_tls(new, name)
        if peer_tls is not None and self._peer_port is not None:
            try:
                self._peer_port.renew_tls(peer_tls)
            except CertificateUnusable as error:
                raise ConfigError(str(error)) from None
        for context in self._client_contexts:
            assert new.tls is not None, "contexts are made from certificates"
            show_certificate(context, new.tls, name)
        if new.jwt != self.config.jwt:
            self.authentication.replace_signed(self._tokens(new.jwt))
        self.config = new
        self._show_configuration()
        if not self.broker.users_in_log:
            self.authentication.replace(new.users)
        self.broker.users_replaced()
        logger.info("event=reloaded users=%d", len(self.authentication.users()))

    def _show_configuration(self) -> None:
        about = self.broker.about
        about.certificates = self._certificate_ends(self.config)
        about.configuration = to_toml(replace(self.config, nodes=self.roster.nodes))

    def _certificate_ends(self, config: ClusterConfig) -> dict[str, int]:
        """The ends of the certificates that this node shows, for its status."""
        tls, ends = config.tls, {}
        for port in ("client", "peer"):
            if tls is not None and getattr(tls, f"{port}_cert") is not None:
                cert, key = (tls.path(f"{port}_{what}", self.me.name) for what in ("cert", "key"))
                with contextlib.suppress(CertificateUnreadable):
                    ends[port] = int(certificates.read(cert, key).ends * 1000)
        return ends

    def client_context(self, *, asks: bool = False) -> ssl.SSLContext | None:
        """The TLS context of the client port, which asks for certificates, or of the http port;
        None for a plain port. Raises ConfigError."""
        tls = self.config.tls
        if tls is not None and tls.client_cert is not None:
            context = client_context(tls, self.me.name, asks=asks)
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
        return replace(
            identity_of(config, self.me.name),
            peers={
                node.name: (node.peer.host, node.peer.port) for node in config.peers(self.me.name)
            },
            heartbeat_seconds=config.raft.heartbeat_ms / 1000,
            min_timeout_seconds=config.raft.election_min_ms / 1000,
            max_timeout_seconds=config.raft.election_max_ms / 1000,
            connection_seconds=config.raft.connection_timeout_ms / 1000,
            snapshot_bytes=config.raft.snapshot_bytes,
            disk_low_bytes=config.limits.disk_low_bytes,
            joins=self._joins,
            clients={node.name: (str(node.client), str(node.http)) for node in config.nodes},
        )

    def _accept(self) -> Connection:
        return Connection(self.broker, self._env.clock, self.config.limits.in_flight_publishes)

    def read_area(self, index: int) -> memoryview:
        """Read the body area of an entry, from the disk where it is not in memory."""
        assert self._raft is not None, "started before"
        return entry.area_of(self._raft.read(index))

    async def run(self) -> None:
        """Run until `stop`. Raises NodeStopped if the node cannot go on."""
        await asyncio.shield(self._stopped)
        if self._ended is not None:
            await self._close()
            raise NodeStopped(self._ended, recovers=self._recovers)

    async def stop(self) -> None:
        """Stop in order: transfer leadership, redirect clients, close the journal."""
        if self._raft is None:
            return
        await self._hand_over()
        self._stop_turns()
        self.broker.close_all()
        connections = self.broker.connections
        if len(connections):
            connections.emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connections.emptied.wait(), limits.STOP_SECONDS)
        await self._close()
        if not self._stopped.done():
            self._stopped.set_result(None)
        logger.info("event=stopped node=%s", self.me.name)

    async def _hand_over(self) -> None:
        """Transfer leadership before this node stops: its clients then wait for milliseconds
        instead of an election timeout. If that fails, the other members elect a leader."""
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
        """Stop without notice, as far as one process can: for tests of fail-over."""
        await self._close()

    @property
    def leads(self) -> bool:
        """Whether this node leads, and has applied its own `lead`."""
        return self.broker.led and not self._stopping

    async def _close(self) -> None:
        """Release everything that is open."""
        self._stop_turns()
        if self._http is not None:
            await self._http.stop()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.broker.abort_all()
        self.authentication.close()
        if self._notebook is not None:
            self._notebook.close()
        raft, self._raft = self._raft, None
        if raft is not None:
            await raft.close()
        if self._audit is not None:
            self._audit.close()

    def _stop_turns(self) -> None:
        self._stopping = True
        self._turns.stop()

    # --- turns ------------------------------------------------------------------------------------

    def _turn(self) -> float | None:
        """Run one turn; seconds until the next, or None if there is none. No exception is lost."""
        raft = self._raft
        if raft is None:
            return None
        began = self._env.stopwatch()
        if began >= self._stretches.stale_at:
            self._stretches.read(began)
        try:
            if self.broker.leadership is not None:
                self.broker.before_turn(self.broker.leadership)
            self._turns.asked = False
            delay = raft.turn()
            gathered = self.broker.after_turn()
            if gathered is not None and gathered < delay:
                delay = gathered
            ended = self._env.stopwatch()
            if ended - began >= limits.STRETCH_NOTED_SECONDS:
                self._stretches.note("turn", began, ended)
        except RaftStopped as stopped:
            self._recovers = isinstance(stopped, MustRecover)
            self._end(stopped.reason)
            return None
        except Exception as error:
            self._fail("turn", error)
            return None
        return delay

    def _flush(self) -> None:
        """Send answers given since the last turn: pongs, renewals, refusals."""
        try:
            self.broker.flush()
        except Exception as error:
            self._fail("flush", error)

    # --- between turns ----------------------------------------------------------------------------

    def _taken_over(self) -> None:
        if self.collector is not None:
            self.collector.adopt()

    def _housekeeping(self) -> None:
        """Run the lock clock, the sweep of connections and the garbage collector, by timer."""
        if self._stopping:
            return
        now = self._env.clock()
        gap, self._looked_at = now - self._looked_at, now
        try:
            self._timed("look", lambda: self.broker.look(gap))
            self._timed("digest", lambda: self.broker.digests.look(self._env.stopwatch))
            if now - self._swept_at >= limits.SWEEP_SECONDS:
                self._swept_at = now
                self._timed("sweep", self.broker.sweep)
            if self.collector is not None:
                self._collect(self.collector, now)
        except Exception as error:
            self._fail("housekeeping", error)
            return
        asyncio.get_running_loop().call_later(limits.LOOK_SECONDS, self._housekeeping)

    def _collect(self, collector: Collector, now: float) -> None:
        """Look for garbage, and at all there is where this member may be away for that long."""
        raft = self._raft
        leads = raft is not None and raft.is_leader
        at_all = self._absences.may_go(self.broker.clock.now_ms(), leads=leads)
        self._timed("collect", lambda: collector.look(at_all=at_all))
        if raft is None or not (collector.overdue and leads) or self._stopping:
            return
        target = raft.successor()
        if target is not None and not raft.transferring and self._absences.may_hand_over(now):
            logger.info("event=transfer target=%s reason=a look for garbage is overdue", target)
            raft.transfer(target, lambda why: logger.info("event=transfer_failed reason=%s", why))

    def _timed(self, kind: str, work: Callable[[], None]) -> None:
        began = self._env.stopwatch()
        self._stretches.read(began)
        work()
        self._stretches.note(kind, began, self._env.stopwatch())

    def _fail(self, step: str, error: Exception) -> None:
        logger.exception("event=%s_failed", step, exc_info=error)
        self._end(f"{type(error).__name__}: {error}")

    def _end(self, reason: str) -> None:
        """Stop acting at once, and end `run`: this node cannot go on."""
        logger.error("event=node_failed node=%s reason=%s", self.me.name, reason)
        self._stop_turns()
        self._ended = reason
        self._resigned.set()
        self.broker.abort_all()
        if not self._stopped.done():
            self._stopped.set_result(None)

    def raft_status(self) -> RaftStatus | None:
        """Raft's view of this node; None unless the node runs."""
        return None if self._raft is None else self._raft.status()

    def leader(self) -> NodeConfig | None:
        """The leader as last heard of; None if none is known."""
        name = None if self._raft is None else self._raft.leader
        return None if name is None else self.roster.find(name)

    def shows_totals(self) -> bool:
        """Whether the totals of this node's state are not below those that it showed before it was
        restarted, or cut off: counters that fall look like a restart, whose whole count is new."""
        raft = self._raft
        return (
            raft is not None
            and self.unready() is None
            and raft.applied_index >= self._last_index_at_start
        )

    def seconds_since(self, at: float | None) -> float:
        """Seconds since a time of this node's clock, or since its start."""
        return self._env.clock() - (self._started_at if at is None else at)

    def unready(self) -> str | None:
        """The reason why this node should get no traffic, or None."""
        raft = self._raft
        return "stopping" if raft is None or self._stopping else not_ready(raft)


def not_ready(raft: RaftNode) -> str | None:
    """The reason why the node of `raft` should get no traffic, or None."""
    if raft.removed:
        return "was removed from the cluster"
    waits_for = raft.waits_for()
    if waits_for is not None:
        return f"has no voice yet: waits for {waits_for}"
    if raft.undecided:
        return "the states of the members differ, and none is known to be right: see its log"
    if raft.differs:
        return "its state is not that of the majority, and is replaced by it"
    if raft.leader is None:
        return "no leader known"
    lag = raft.commit_index - raft.applied_index
    if lag > limits.READY_LAG_ENTRIES:
        return f"{lag} entries behind"
    return None


__all__ = ["Node", "NodeStopped", "RaftError"]


def identity_of(config: ClusterConfig, name: str) -> RaftConfig:
    """The part of a node's configuration of the log that proves who it is, without its peers."""
    me = config.node(name)
    return RaftConfig(
        name=name,
        peers={},
        bind=(me.peer.host, me.peer.port),
        cluster_id=config.cluster_id,
        secret=config.secret,
        tls=_peer_tls(config, name),
    )


def peer_port_of(config: ClusterConfig, name: str) -> TcpTransport:
    """A peer port that asks with the identity of a node, and is not started."""
    return tcp(identity_of(config, name), random.Random())


def _peer_tls(config: ClusterConfig, name: str) -> PeerTls | None:
    tls = config.tls
    if tls is None or tls.peer_cert is None:
        return None
    cert, key, ca = (tls.path(f"peer_{what}", name) for what in ("cert", "key", "ca"))
    return PeerTls(cert, key, ca)
