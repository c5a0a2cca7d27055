"""A real node as a process of its own: `python -m tests.jepsen.node FOLDER NAME [--at PLACE]`.

Owns what a node of the suite has beyond `fifo serve`: other ways than its configuration says (to
its peers through proxies, and from clients, who know a proxy in front of it), faults of its disk
and jumps of its wall clock that a control file asks for (`Cluster.control` writes it), its state on
SIGUSR2, and bugs put back on purpose (`FIFO_MUTANT`). Everything else is the node as it ships.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import json
import logging
import os
import random
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fifo.machine.state.records import Queue
from node.broker import limits
from node.broker.connections.listener import Listener
from node.broker.joining import Joining
from node.broker.machine_host import MachineHost
from node.config import (
    Address,
    ClusterConfig,
    LimitSettings,
    NodeConfig,
    RaftSettings,
    cluster_id_of,
    parse_address,
)
from node.http.server import HttpServer
from node.journal.io.storage import OsFile, OsStorage
from node.peers.dialing import Dialing, DialingSockets, Made
from node.peers.transport import MemberConfig, TcpTransport
from node.raft import boot_clock
from node.server import Environment, Node, identity_of
from tests.jepsen import mutants
from tests.support import raft_probe
from tests.support.users import EVERYTHING, Certificate, user

_NEVER = threading.Event()

MARK_ENTRIES = 64
DIGEST_MS = 2_000
"""Nodes of the suite compare their states more often than those that ship: its runs are short."""

MOVE_S = 5.0
"""Leaders of the suite move for clients that do not reach them sooner after their election."""

CLOCK_LOOK_S = 0.05
"""Between two looks at the rate of the clock."""

PAUSE = 0.01
"""A slow sync is waited out in pieces of this length (s), so that healing ends it at once."""


class Control:
    """The file that says what is wrong with this node's disk and wall clock just now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0
        self._says: dict[str, Any] = {}

    def get(self, name: str) -> float:
        """The value under this name; 0 where there is none."""
        with contextlib.suppress(OSError, ValueError):
            changed = self._path.stat().st_mtime_ns
            if changed != self._seen:
                self._says = json.loads(self._path.read_text())
                self._seen = changed
        return float(self._says.get(name, 0))

    def wall(self) -> float:
        """The wall clock, as it has jumped."""
        return time.time() + self.get("wall_seconds")

    def before_write(self) -> None:
        """Raise what the disk would."""
        if self.get("full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def before_sync(self) -> None:
        """Take the time that the disk takes, or fail as it does."""
        end = time.monotonic() + self.get("sync_seconds")
        while time.monotonic() < end and self.get("sync_seconds"):
            _NEVER.wait(PAUSE)
        if self.get("fails"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class RatedClock:
    """The monotonic clock of a machine whose rate a control file says, without a jump."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._real = self._shown = boot_clock()
        self._rate, self._look_at = 1.0, 0.0

    def __call__(self) -> float:
        real = boot_clock()
        shown = self._shown + (real - self._real) * self._rate
        if real >= self._look_at:
            self._look_at = real + CLOCK_LOOK_S
            self._real, self._shown = real, shown
            self._rate = 1.0 + self._control.get("clock_rate")
        return shown


class Erring:
    """The host of a machine that computes wrongly, once for each time that it is asked to."""

    def __init__(self, host: MachineHost, control: Control) -> None:
        self._host = host
        self._control = control
        self._apply = host.apply
        self._asked = 0.0

    def __call__(self, index: int, payload: memoryview) -> Any:
        found = self._apply(index, payload)
        asked = self._control.get("errs")
        if asked != self._asked:
            queues = self._host.machine.state.queues
            if asked and not queues:
                return found  # There is nothing to get wrong.
            self._asked = asked
            if asked:
                _flip(queues[min(queues)], touched=asked == 1)
        return found


def _flip(queue: Queue, *, touched: bool) -> None:
    """Change a field that the next entry looks at, or one that none does."""
    if touched:
        queue.bytes += 1
    else:
        queue.counters["published"] += 1


class SickFile(OsFile):
    """A file on a disk that may be slow, full or failing."""

    control: Control

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        self.control.before_write()
        super().write(offset, parts)

    def sync(self) -> None:
        self.control.before_sync()
        super().sync()


class SickStorage(OsStorage):
    """The journal's folder on such a disk."""

    def __init__(self, directory: Path, control: Control) -> None:
        super().__init__(directory)
        self._control = control

    def create(self, name: str) -> OsFile:
        self._control.before_write()
        return self._sick(super().create(name))

    def open(self, name: str) -> OsFile:
        return self._sick(super().open(name))

    def sync_folder(self) -> None:
        self._control.before_sync()
        super().sync_folder()

    def free_bytes(self) -> int:
        return 0 if self._control.get("full") else super().free_bytes()

    def _sick(self, file: OsFile) -> OsFile:
        sick = SickFile(file._descriptor, file._seats)
        sick.control = self._control
        return sick


def file_of(folder: Path, name: str, at: str | None = None) -> ClusterConfig:
    """The `cluster.toml` of this node: with the nodes that it was written with, at their addresses
    of today; one that joined lists itself alone, and where to ask. `at`: the place of its own,
    where that is not the one by its name, as of a copy that runs on another machine."""
    plan = plan_of(folder)
    places = plan["nodes"] | {name: plan["nodes"][at or name]}
    nodes = [
        NodeConfig(
            name=other,
            client=parse_address(places[other]["door"]),
            peer=parse_address(places[other]["peer"]),
            http=parse_address(places[other]["http"]),
            data_dir=Path(places[other]["data"]),
        )
        for other in plan["files"][name]
    ]
    alone = plan["files"][name] == [name]
    secured: dict[str, Any] = {}
    if plan["secured"]:
        secured["users"] = (user("suite", **EVERYTHING, monitor=True, operate=True),)
        secured["tls"] = replace(
            Certificate(folder / "certs").settings,
            peer_cert="peers/{node}.pem", peer_key="peers/{node}.key", peer_ca="peers/ca.pem",
        )  # fmt: skip
    return ClusterConfig(
        name="jepsen",
        cluster_id=cluster_id_of("jepsen"),
        secret=b"a secret of the fault suite",
        nodes=tuple(nodes),
        join=tuple(map(parse_address, plan["join"].get(name, ()))) if alone else (),
        raft=RaftSettings(**plan["raft"]),
        limits=LimitSettings(**plan["limits"]),
        **secured,
    )


def plan_of(folder: Path) -> dict[str, Any]:
    """Read what `Cluster` says of all nodes just now."""
    return dict(json.loads((folder / "cluster.json").read_text()))


def dialing(folder: Path, name: str) -> Callable[[str, int], Dialing]:
    """Dials of this node, through the proxy that leads to an address where there is one."""

    def through(host: str, port: int) -> Dialing:
        address = f"{host}:{port}"
        return Through(lambda: plan_of(folder)["dials"].get(f"{name}>{address}", address))

    return through


class Through:
    """Dials to one member, each where the plan of the run says at that time."""

    def __init__(self, where: Callable[[], str]) -> None:
        self._where = where
        self._sockets: DialingSockets | None = None
        self._dialed = ""

    async def connect(self, make: Callable[[], Made], tls: ssl.SSLContext | None) -> Made:
        """As `DialingSockets` does."""
        where = self._where()
        if self._sockets is None or where != self._dialed:
            self.close()
            address = parse_address(where)
            self._sockets, self._dialed = DialingSockets(address.host, address.port), where
        return await self._sockets.connect(make, tls)

    async def keep_one(self, ended: asyncio.Future[None]) -> None:
        """As `DialingSockets` does."""
        assert self._sockets is not None, "a connection is kept once there was one"
        await self._sockets.keep_one(ended)

    def close(self) -> None:
        """As `DialingSockets` does."""
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            sockets.close()


class Behind(Listener):
    """A client port behind a proxy, whose address is the one that clients know."""

    def __init__(self, own: Address, *given: Any) -> None:
        super().__init__(*given)
        self._own = own

    async def start(self, _host: str, _port: int) -> None:
        await super().start(self._own.host, self._own.port)


async def made(folder: Path, name: str, at: str, *, recover: bool) -> Node:
    """The node. Clients get the address of the proxy's port; the node listens behind it. One that
    joins asks first who the members are."""
    config = file_of(folder, name, at)
    control = Control(folder / f"{at}.control")
    own = parse_address(plan_of(folder)["nodes"][at]["client"])

    def port(raft: MemberConfig, rng: random.Random) -> TcpTransport:
        return TcpTransport(raft, rng=rng, dialing=dialing(folder, name))

    def storage(path: Path) -> SickStorage:
        return SickStorage(path, control)

    joins = bool(config.join)
    if joins:
        asking = port(identity_of(config, name), random.Random())
        me = config.node(name)
        config = await Joining(config, me, asking).found(storage(me.data_dir))
    node = Node(
        config,
        name,
        Environment(
            clock=RatedClock(control),
            wall=control.wall,
            storage=storage,
            transport=port,
            listener=partial(Behind, own),
        ),
        http=HttpServer,
        recover=recover,
        joins=joins,
    )
    host = node.broker.host
    host.mark_entries, host.digest_ms = MARK_ENTRIES, DIGEST_MS
    host.digest_at_ms = DIGEST_MS
    node.broker.digests._wait_s = 0.0
    host.apply = Erring(host, control)  # type: ignore[method-assign]
    setattr(limits, "LEADER_MOVE_SECONDS", MOVE_S)  # noqa: B010  # of this process alone
    return node


def _refuse_threads(control: Control) -> None:
    """Have no thread of this process start while the control file says so."""
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if control.get("no_threads"):
            raise RuntimeError("can't start new thread")
        start(thread)

    setattr(threading.Thread, "start", refused)  # noqa: B010  # of this process alone


def describe(node: Node) -> dict[str, Any]:
    """The state of the machine of this node, for rule S12."""
    machine = node.broker.host.machine
    raft = raft_probe.raft_of(node)
    queues = {}
    for name in machine.queues():
        overview = machine.queue_overview(name) or {}
        kept = ("messages", "ready", "locked", "delayed", "counters")
        queues[name] = {field: overview[field] for field in kept}
    return {
        "applied": raft.applied_index if raft is not None else -1,
        "hash": machine.digest().hex(),
        "queues": queues,
    }


async def live(folder: Path, name: str, at: str, *, recover: bool) -> None:
    """Until SIGTERM, or until the node cannot go on."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    _refuse_threads(Control(folder / f"{at}.control"))
    node = await made(folder, name, at, recover=recover)

    def tell() -> None:
        path = folder / f"{at}.state"
        fresh = path.with_name(f"{path.name}.fresh")
        fresh.write_text(json.dumps(describe(node)))
        fresh.rename(path)

    loop.add_signal_handler(signal.SIGTERM, asked.set)
    loop.add_signal_handler(signal.SIGUSR2, tell)
    await node.start()
    running = asyncio.ensure_future(node.run())
    stopping = asyncio.ensure_future(asked.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    await node.stop()


@contextlib.contextmanager
def _mutated() -> Iterator[None]:
    name = os.environ.get("FIFO_MUTANT")
    with mutants.PATCHES[name]() if name else contextlib.nullcontext():
        yield


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--recover", action="store_true")
    parser.add_argument("--at", help="its place in cluster.json, where that is not its name")
    return parser.parse_args()


def main() -> None:
    """Run one node."""
    logging.basicConfig(
        level=logging.INFO,
        format="time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    with _mutated():
        options = _options()
        asyncio.run(
            live(options.folder, options.name, options.at or options.name, recover=options.recover)
        )


if __name__ == "__main__":
    main()
