"""The processes of one run: nodes behind proxies, programs, and somebody who watches the nodes.

Owns the folder of a run (`cluster.json`, `history/`, `logs/`, the nodes' data), and starting,
signalling and ending its processes. Links are `network`'s business, faults are the nemeses'.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

import fifo
from bench.processes import Child, Household
from fifo.client import Options, from_url
from node.config import RaftSettings
from tests.jepsen.history import Event, event_of, line_of, merge
from tests.jepsen.namespaces import Namespaced
from tests.jepsen.network import Proxied
from tests.jepsen.workloads import Workload
from tests.support.certificates import Authority
from tests.support.users import certificate

LOOK_S = 0.05
OBSERVE_S = 0.25
"""Between two looks at every node."""

OBSERVE_LIMIT_S = 1.0
LEADER_LIMIT_S = 30.0
STATE_LIMIT_S = 30.0
"""Until all nodes have applied the same, and say so (V1)."""

DISK_LOW_BYTES = 1 << 20
"""Below it publishes are refused; small, for the disks of the suite are."""


USER = "suite"
"""The user of programs in a secured cluster; the password is `tests.support.users`'."""

PEERS = "peers"
"""The folder of the nodes' own certificates, within that of all."""

SNAPSHOT_BYTES = 256 << 10
"""Of log between two snapshots: one in a second or two, far more often than the least that a
configuration file may say."""


class Rooms(Protocol):
    """Whatever makes a disk for each node."""

    def make(self, name: str) -> None:
        """Make and mount the disk of a node."""

    def copy(self, name: str, to: str) -> Path:
        """Copy a disk as it is, block by block, mount the copy and return its data."""
        ...

    def remove(self, name: str) -> None:
        """Take it away again."""


class RunFailed(Exception):
    """The run could not be carried out: not a verdict on a history, but no run either."""


class Cluster:
    """Nodes n1, n2, ..., each with a door for clients and links to its elders, all proxied."""

    def __init__(
        self,
        household: Household,
        folder: Path,
        seed: int,
        *,
        nodes: int = 3,
        secured: bool = False,
        network: type[Proxied] | type[Namespaced] = Proxied,
    ) -> None:
        """`secured`: every port speaks TLS, nodes prove who they are by certificates, and programs
        are a user with a password."""
        self.household = household
        self.folder = folder
        self.seed = seed
        self.names = [f"n{place + 1}" for place in range(nodes)]
        self.network = network(self.names, random.Random(f"network {seed}"))
        self.children: dict[str, Child] = {}
        self.programs: dict[str, tuple[str, Any]] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.memory: list[tuple[float, str, int]] = []
        self.started = False
        self._secured = secured
        self._authority: Authority | None = None
        self._ca: Path | None = None
        self._options: Options | None = None
        self.mutant: str | None = None
        self.older: dict[str, Path] = {}
        """The modules of an older release, by the node or program that runs it."""
        self.forward = True
        """Whether nodes go to today's release just now, and not back."""
        self.data: dict[str, Path] = {name: folder / "data" / name for name in self.names}
        self.disks: Rooms | None = None
        self.change: Any = None
        """The change of members that is under way: `members`."""
        self.former: list[str] = []
        """Nodes that were removed, and may still run."""
        self.url = ""
        """The addresses of the first nodes, all that programs are given."""
        self._named = nodes
        self._plan: dict[str, Any] = {}
        self._ports: dict[str, str] = {}
        self._snapshots: dict[str, int] = {}
        self._terms: dict[int, str] = {}
        self._incarnations: dict[str, int] = {}
        self._watching: asyncio.Task[None] | None = None
        for part in ("history", "logs", "data"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        self._file = self._open()

    # --- history ----------------------------------------------------------------------------------

    def add(self, kind: str, f: str, process: str, **value: Any) -> Event:
        """Record an event of the suite's own, now."""
        event = event_of(kind, f, process, time.monotonic(), 0, value)
        self._file.write(line_of(event).encode() + b"\n")
        return event

    def _open(self) -> FileIO:
        return (self.folder / "history" / "suite.jsonl").open("ab", buffering=0)

    def tell(self, **changes: Any) -> None:
        """Change `cluster.json`, which programs and nodes read when they start."""
        self._plan |= changes
        fresh = self.folder / "cluster.json.fresh"
        fresh.write_text(json.dumps(self._plan, indent=1))
        fresh.rename(self.folder / "cluster.json")

    def take_history(self) -> list[Event]:
        """The events of all processes so far, as one history, which begins anew."""
        events = merge((self.folder / "history").glob("*.jsonl"))
        self._file.close()
        for path in (self.folder / "history").iterdir():
            path.unlink()
        self._file = self._open()
        return events

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Proxies, plan, nodes; returns with the first leader."""
        places = await self.network.start()
        for name, node in places.items():
            node["data"] = str(self.data[name])
        plan: dict[str, Any] = {
            "seed": self.seed,
            "nodes": places,
            "dials": self.network.dials(),
            "files": dict.fromkeys(self.names, self.names[:]),
            "join": {},
            "raft": dataclasses.asdict(RaftSettings(snapshot_bytes=SNAPSHOT_BYTES)),
            "limits": {"disk_low_bytes": DISK_LOW_BYTES},
            "url": self._first_url([node["door"] for node in places.values()]),
            "secured": self._secured,
            "slow_links": False,
        }
        self.url = plan["url"]
        self._options = from_url(self.url)
        self._ports = {name: node["client"] for name, node in places.items()}
        self._plan = plan
        self.tell()
        for name in self.names:
            self.start_node(name)
        self._watching = asyncio.ensure_future(self._watch())
        self.started = True
        await self.leader()

    def _first_url(self, doors: list[str]) -> str:
        if self._secured:
            names = ",".join(f"IP:{host}" for host in self.network.hosts())
            self._ca = certificate(self.folder / "certs", names).ca
            self._authority = Authority(self.folder / "certs" / PEERS)
            for name in self.names:
                self._authority.member(name)
        return self._url(doors)

    def _url(self, doors: list[str]) -> str:
        if not self._secured:
            return "fifo://" + ",".join(doors)
        return f"fifos://{USER}:{USER}-password@{','.join(doors)}?ca={self._ca}"

    def members_url(self) -> str:
        """The addresses of today's members, as an operator has them."""
        return self._url([self._plan["nodes"][name]["door"] for name in self.names])

    async def stop(self) -> None:
        """End all; nothing is left running."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for child in self.children.values():
            child.signal(signal.SIGCONT)
        self.household.end()
        await self.network.stop()
        self._file.close()

    # --- nodes ------------------------------------------------------------------------------------

    async def join(self) -> str:
        """Set up one more machine, whose node knows where the members are; returns its name."""
        self._named += 1
        name = f"n{self._named}"
        self.data[name] = self.folder / "data" / name
        if self.disks is not None:
            self.disks.make(name)
        if self._authority is not None:
            self._authority.member(name)
        await self._place(name)
        joins = [self._plan["nodes"][other]["peer"] for other in self.names]
        self.names.append(name)
        self.tell(
            files=self._plan["files"] | {name: [name]}, join=self._plan["join"] | {name: joins}
        )
        self.start_node(name)
        return name

    async def move(self, name: str) -> dict[str, str]:
        """Give a node that does not run other addresses, in its own file; returns them."""
        await self._place(name)
        node = self._plan["nodes"][name]
        return {"peer": node["peer"], "client": node["door"], "http": node["http"]}

    async def _place(self, name: str) -> None:
        place = await self.network.join(name)
        self._ports[name] = place["client"]
        place["data"] = str(self.data[name])
        self.tell(nodes=self._plan["nodes"] | {name: place}, dials=self.network.dials())

    def part(self, name: str) -> None:
        """A node is no member any more; it may go on, and has to be of no effect."""
        self.names.remove(name)
        self.views.pop(name, None)
        self.former.append(name)

    async def forget(self, name: str) -> None:
        """End a former member, with its data and its place."""
        self.former.remove(name)
        await self._gone(name)
        if self.disks is not None:
            self.disks.remove(name)
        shutil.rmtree(self.data.pop(name), ignore_errors=True)

    async def double(self, name: str, data: Path) -> str:
        """Start a second process of a node, as on another machine: with these files, at addresses
        of its own; returns the name that it has here."""
        double = f"{name}c"
        self.data[double] = data
        await self._place(double)
        self.start_double(name, double)
        return double

    def start_double(self, name: str, double: str) -> None:
        """Start that process if it does not run."""
        if not self.runs(double):
            self._start(double, name, "--at", double)

    async def undouble(self, double: str) -> None:
        """End that process, and its place; its files stay."""
        await self._gone(double)
        del self.data[double]

    async def _gone(self, name: str) -> None:
        if self.runs(name):
            await self.kill(name)
        await self.network.leave(name)
        self.tell(dials=self.network.dials())  # Files of others may name it on.

    def start_node(self, name: str, *flags: str) -> None:
        """Start a node that does not run. One that has to recover has today's members in its file:
        what it remembered may be gone."""
        if not self.runs(name):
            if flags:
                self.tell(files=self._plan["files"] | {name: self.names[:]})
            self.views.pop(name, None)
            self._start(name, name, *flags)

    def _start(self, process: str, name: str, *flags: str) -> None:
        """Start a process of this node."""
        changes = {"FIFO_MUTANT": self.mutant} if self.mutant else {}
        changes |= self._modules(name)
        program = "tests.upgrade.old_node" if name in self.older else "tests.jepsen.node"
        node = sys.executable, "-P", "-m", program, str(self.folder), name, *flags
        command = *self.network.inside(process), *node
        self.children[process] = self.household.start(process, *command, env=changes)

    def _modules(self, name: str) -> dict[str, str]:
        """Variables with which Python takes modules from the release that `name` runs."""
        folder = self.older.get(name)
        return {} if folder is None else {"PYTHONPATH": str(folder)}

    def runs(self, name: str) -> bool:
        """Whether this process lives, paused or not."""
        child = self.children.get(name)
        return child is not None and child.exit_code() is None

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        child = self.children[name]
        child.signal(signal.SIGKILL)
        await self.ended([name], LEADER_LIMIT_S)

    def signal(self, name: str, number: signal.Signals) -> None:
        """To a node or a program, if it lives."""
        if self.runs(name):
            self.children[name].signal(number)

    def control(self, name: str, **says: float) -> None:
        """Set the faults of a node's disk and wall clock from now on: `node.Control`."""
        path = self.folder / f"{name}.control"
        fresh = path.with_name(f"{path.name}.fresh")
        fresh.write_text(json.dumps(says))
        fresh.rename(path)

    async def leader(self, *, above: int = -1, but: str = "") -> str:
        """Wait for a node that says it leads, in a term above this one."""
        if not await until(lambda: self.leading(above=above, but=but), LEADER_LIMIT_S):
            raise RunFailed(f"no leader within {LEADER_LIMIT_S:.0f} s")
        return self.leading(above=above, but=but) or ""

    async def came_up(self, name: str) -> bool:
        """Wait until a started node answers, or has ended; whether it answers."""
        await until(lambda: not self.runs(name) or name in self.views, LEADER_LIMIT_S)
        return self.runs(name)

    async def bring_up(self, name: str) -> None:
        """Have a node run, and start it again if it dies of what was wrong before it could run.

        Raises RunFailed if it does so twice.
        """
        self.start_node(name)
        if not await self.came_up(name):
            self.start_node(name)
            if not await self.came_up(name):
                raise RunFailed(f"{name} does not start: {self.children[name].last_lines(1)}")

    def leading(self, *, above: int = -1, but: str = "") -> str | None:
        """The node that was last seen to lead in the newest term, if any."""
        led = [
            (int(view["term"]), name)
            for name, view in self.views.items()
            if view["role"] == "leader" and int(view["term"]) > above and name != but
        ]
        return max(led, default=(0, None))[1]

    def term(self) -> int:
        """The newest term that was seen."""
        return max(self._terms, default=0)

    async def _watch(self) -> None:
        while True:
            await asyncio.gather(*map(self._look, self.names))
            await asyncio.sleep(OBSERVE_S)

    async def _look(self, name: str) -> None:
        child = self.children[name]
        try:
            view = await fifo.client.observe(
                self._ports[name], OBSERVE_LIMIT_S, options=self._options
            )
        except (fifo.FifoError, OSError):
            self.views.pop(name, None)
            return
        if name not in self.names:
            return
        self.views[name] = dict(view)
        term = int(view["term"])
        if view["role"] == "leader" and term not in self._terms:
            self._terms[term] = name
            self.add("ok", "leader", name, node=name, term=term)
        snapshot = view.get("snapshot", {}).get("index", 0)
        if snapshot > self._snapshots.get(name, 0):
            self._snapshots[name] = snapshot
            self.add("ok", "snapshot", name, node=name, index=snapshot)
        resident = resident_bytes(child.pid)
        if resident:
            self.memory.append((time.monotonic(), name, resident))

    async def states(self) -> None:
        """Write down every node's state, when all have applied the same."""
        deadline = time.monotonic() + STATE_LIMIT_S
        while True:
            found = {name: await self._state(name) for name in self.names}
            applied = {one["applied"] for one in found.values() if one}
            if (all(found.values()) and len(applied) == 1) or time.monotonic() > deadline:
                break
            await asyncio.sleep(LOOK_S)
        for name, state in found.items():
            self.add(
                "ok",
                "state",
                name,
                node=name,
                **(state or {"applied": -1, "hash": "", "queues": {}}),
            )

    async def _state(self, name: str) -> dict[str, Any] | None:
        path = self.folder / f"{name}.state"
        path.unlink(missing_ok=True)
        self.signal(name, signal.SIGUSR2)
        deadline = time.monotonic() + OBSERVE_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                return dict(json.loads(path.read_text()))
            await asyncio.sleep(LOOK_S)
        return None

    # --- programs ---------------------------------------------------------------------------------

    def program(self, name: str, kind: str, how: Any) -> Child:
        """Start a client program; the same again where it has ended."""
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        self.programs[name] = kind, how
        child = self.household.start(
            f"{name}.{number}", sys.executable, "-P", "-m", "tests.jepsen.program",
            str(self.folder), f"{name}.{number}", kind, json.dumps(how), env=self._modules(name),
        )  # fmt: skip
        self.children[name] = child
        return child

    def start_programs(self, workload: Workload) -> None:
        """All of a workload's programs."""
        for place, how in enumerate(workload.publishers):
            self.program(f"p{place + 1}", "publish", dataclasses.asdict(how))
        for place, one in enumerate(workload.consumers):
            self.program(f"c{place + 1}", "consume", dataclasses.asdict(one))

    def revive(self) -> None:
        """Start again what has died: poison and nemeses kill programs."""
        for name, (kind, how) in list(self.programs.items()):
            if not self.runs(name) and kind in ("publish", "consume"):
                self.program(name, kind, how)

    def listens(self, name: str) -> bool:
        """Whether a program has come so far as to hear signals."""
        return (self.folder / f"{name}.{self._incarnations[name]}.ready").exists()

    async def ended(self, names: list[str], seconds: float) -> list[str]:
        """Wait for the end of these; returns those that have not ended."""
        await until(lambda: not any(map(self.runs, names)), seconds)
        return [name for name in names if self.runs(name)]


async def until(true: Callable[[], object], seconds: float) -> bool:
    """Look until something is so; False where it was not in this time."""
    deadline = time.monotonic() + seconds
    while True:
        if true():
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(LOOK_S)


def resident_bytes(pid: int) -> int:
    """The memory of a process, where the system says so as Linux does; else 0."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0
