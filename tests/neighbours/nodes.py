"""Three node processes with users and a small number of descriptors, and what is seen of them.

Owns their configuration, start and end, their memory and logs. Must not know attacks or clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import fifo
from bench.loopback import free_base, until
from bench.processes import Child, Household
from fifo.client import Connecting, Options, observe
from fifo.client.errors import FifoError
from node.config import ClusterConfig, cluster_config, to_toml
from node.credentials import hash_password
from node.users import Quota, User
from tests.neighbours.field import DYING, READER, STRANGER, TENANT, WATCHER, WRITER
from tests.neighbours.visitors import PASSWORD, VISITORS
from tests.support.users import EVERYTHING, user

HONEST: Final = "honest"
DESCRIPTORS: Final = 1_024
"""The usual hard limit of a login, and all that a node has here."""

START_SECONDS: Final = 40.0
STOP_SECONDS: Final = 20.0
RELOAD_SECONDS: Final = (0.008, 0.2)
"""Between two reloads, in turns: the first of a pair forgets verified passwords, so that the second
comes while one is hashed again."""

ENDED_AT_ONCE: Final = 100
"""Ends of sessions that an operator asks for before it waits."""

DYING_SESSIONS: Final = 2_200
"""Programs that die at 33 a second stay below it while a session is kept for 60 s, not longer."""

OFFSETS: Final = tuple(10 * node + use for node in range(3) for use in (1, 2, 3))


class Nodes:
    """Nodes n1, n2 and n3 under `folder`."""

    def __init__(self, folder: Path, secret: bytes | None = None) -> None:
        """`secret`: of the members; without one, any program can pass for one."""
        folder.mkdir(parents=True, exist_ok=True)
        self.secret = secret
        self._household = Household(folder / "logs")
        self.config = _config(folder, secret)
        self.children: dict[str, Child] = {}
        self.visitors = iter(VISITORS)
        """Users that no node remembers yet."""
        self._folder = folder
        self._options = Options(("",), token=f"{HONEST}-token")

    async def start(self) -> None:
        """Start all; returns when one leads and the others follow."""
        path = self.config.path
        assert path is not None, "it was made with one"
        path.write_text(to_toml(self.config))
        for node in self.config.nodes:
            self._serve(node.name)
        await until(self._agreed, START_SECONDS, "no leader")

    def _serve(self, name: str) -> None:
        serve = [sys.executable, "-m", "node", "serve", "--config", str(self.config.path)]
        command = shlex.join([*serve, "--node", name])
        limited = f"ulimit -n {DESCRIPTORS}; exec {command}"
        self.children[name] = self._household.start(name, "sh", "-c", limited)

    async def restart(self, *, leader: bool) -> None:
        """Kill the leader, or a node that does not lead, and start it again; returns when one leads
        and the others follow."""
        leads = await self._leader()
        name = next(name for name in self.children if (name == leads) == leader)
        child = self.children[name]
        child.signal(signal.SIGKILL)

        async def gone() -> bool:
            return child.exit_code() is not None

        await until(gone, STOP_SECONDS, f"{name} was killed and runs")
        self._serve(name)
        await until(self._agreed, START_SECONDS, f"{name} does not follow after a restart")

    async def reload(self) -> None:
        """Have all nodes reload their users, again and again, until cancelled."""
        pause = asyncio.Event()
        for seconds in itertools.cycle(RELOAD_SECONDS):
            for child in self.children.values():
                child.signal(signal.SIGHUP)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pause.wait(), seconds)

    async def _agreed(self) -> bool:
        views = await self.views()
        leads = {view["leader"] for view in views.values()}
        return len(views) == 3 and len(leads) == 1 and None not in leads

    def stop(self) -> None:
        """End all."""
        self._household.end()

    async def views(self) -> dict[str, dict[str, Any]]:
        """The status of each node that answers."""
        asked = await asyncio.gather(*(self._view(str(one.client)) for one in self.config.nodes))
        names = [node.name for node in self.config.nodes]
        return {name: view for name, view in zip(names, asked, strict=True) if view is not None}

    async def _view(self, address: str) -> dict[str, Any] | None:
        try:
            return await observe(address, 3.0, options=self._options)
        except FifoError:
            return None

    async def term(self) -> int:
        """The highest term that a node is in, once one answers."""

        async def look() -> list[int] | None:
            return [view["term"] for view in (await self.views()).values()] or None

        return max(await until(look, START_SECONDS, "no node answers"))

    async def _leader(self) -> str:
        """The leader, once all that answer name the same."""

        async def look() -> str | None:
            leads = {view["leader"] for view in (await self.views()).values()} - {None}
            return leads.pop() if len(leads) == 1 else None

        return await until(look, START_SECONDS, "no leader")

    async def write_plan(self) -> Path:
        """The file that an attacking process goes by."""
        leader = await self._leader()
        nodes = {
            node.name: {"client": node.client.port, "peer": node.peer.port, "http": node.http.port}
            for node in self.config.nodes
        }
        path = self._folder / "plan.json"
        plan = {
            "leader": leader,
            "nodes": nodes,
            "cluster_id": self.config.cluster_id.hex(),
            "secret": (self.secret or b"").hex(),
        }
        path.write_text(json.dumps(plan))
        return path

    def attack(self, plan: Path, kind: str, seconds: float, seed: str) -> tuple[Child, Path]:
        """Start a process that attacks; where it leaves its cost."""
        name = f"attack-{kind.replace(' ', '-')}"
        cost = self._folder / f"{name}.json"
        cost.unlink(missing_ok=True)
        what = (str(plan), kind, str(seconds), seed)
        command = (sys.executable, "-m", "tests.neighbours.attacker", *what)
        return self._household.start(name, *command, stdout=cost), cost

    # --- an operator ---

    async def end_sessions(self) -> None:
        """End the sessions that consume: their consumers and locks are gone for the next attack.

        What only published is kept for its numbers, and ends within a minute.
        """
        async with self._operator() as client:

            async def look() -> bool:
                left = [
                    one
                    for one in await client.sessions()
                    if one.user != HONEST and (one.consumers or one.held or one.use == "consuming")
                ]
                for at in range(0, len(left), ENDED_AT_ONCE):
                    piece = left[at : at + ENDED_AT_ONCE]
                    ends = (client.end_session(one.session) for one in piece)
                    await asyncio.gather(*ends, return_exceptions=True)  # Some end meanwhile.
                return not left

            await until(look, START_SECONDS, "an operator cannot end the sessions of an attack")

    async def sessions(self, user: str) -> int:
        """The number of sessions of a user."""
        async with self._operator() as client:
            return sum(one.user == user for one in await client.sessions())

    def _operator(self) -> Connecting:
        return fifo.connect(self.config.url, token=f"{HONEST}-token")

    # --- what is seen -----------------------------------------------------------------------------

    def memory_bytes(self) -> dict[str, int]:
        """The resident memory of each node that runs."""
        found = {}
        for name, child in self.children.items():
            status = Path(f"/proc/{child.pid}/status")
            if child.exit_code() is None:
                match = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
                found[name] = 1024 * int(match[1]) if match else 0
        return found

    def ended(self) -> list[str]:
        """Nodes that do not run any more, with their last line."""
        return [
            f"{name}: {child.last_lines(1)}"
            for name, child in self.children.items()
            if child.exit_code() is not None
        ]

    def logs(self) -> dict[str, list[str]]:
        """Lines that each node has written so far."""
        return {
            name: child.log.read_text(errors="replace").splitlines()
            for name, child in self.children.items()
        }


def _config(folder: Path, secret: bytes | None) -> ClusterConfig:
    made = cluster_config(3, free_base(OFFSETS), folder)
    if secret is not None:
        file = folder / "secret"
        file.write_bytes(secret)
        made = replace(made, secret=secret, secret_file=file)
    patterns = dict.fromkeys(EVERYTHING, ("tenant*",))
    costly = hash_password(PASSWORD)
    users = (
        # Its password is guessed at: each guess costs what one at a real password does.
        replace(user(HONEST, monitor=True, operate=True, **EVERYTHING), password=costly),
        user(TENANT, **patterns),
        user(STRANGER),
        user(READER, consume=("tenant.empty",)),
        user(WRITER, publish=("tenant.queue",)),
        user(WATCHER, monitor=True),
        user(DYING, publish=("tenant.queue",), shares=((Quota.SESSIONS, DYING_SESSIONS),)),
        *(User(name, costly, publish=("tenant.queue",)) for name in VISITORS),
    )
    return replace(made, users=users)
