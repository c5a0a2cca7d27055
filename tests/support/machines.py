"""Machines of a cluster whose members change: each a folder, a file of its own, and a process.

Owns the processes, the commands that an operator types, and the load that runs meanwhile: a
publisher and a consumer that know the first addresses alone, what was confirmed, what came, and
the longest pause between two confirms. Must not know which changes are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fifo
from bench.loopback import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

QUEUE = "flights"
READY_S = 60.0
"""Until a node says that it is ready, and until a command has ended, on a busy machine."""


@dataclass
class Machine:
    """A machine with a node, as an operator sets it up."""

    name: str
    folder: Path
    ports: list[int] = field(default_factory=lambda: free_ports(3))
    process: asyncio.subprocess.Process | None = None

    @property
    def client(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def peer(self) -> str:
        return f"127.0.0.1:{self.ports[1]}"

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.ports[2]}"

    @property
    def file(self) -> Path:
        return self.folder / "cluster.toml"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def section(self) -> str:
        lines = {"name": self.name, "client": self.client, "peer": self.peer, "http": self.http}
        text = "".join(f'{key} = "{value}"\n' for key, value in lines.items())
        return f'[[node]]\n{text}data_dir = "{self.folder / "data"}"\n'

    def write(self, *others: Machine, cluster: str = "grows") -> None:
        """Write the file: of this machine alone, or with others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sections = "\n".join(one.section() for one in (self, *others))
        self.file.write_text(f'[cluster]\nname = "{cluster}"\n\n{sections}')

    async def start(self, *join: Machine) -> None:
        """Start the node, to join at these members where any are given."""
        more = [word for one in join for word in ("--join", one.peer)]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "node", "serve", "--config", str(self.file), "--node",
                self.name, *more, stdout=log, stderr=log, env=_environment(),
            )  # fmt: skip

    async def serves(self) -> None:
        """Wait until the node is ready."""
        await eventually(self._is_ready, f"{self.name} is not ready:\n{self.said()}")

    async def _is_ready(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[2])
        except OSError:
            return False
        writer.write(b"GET /health/ready HTTP/1.0\r\n\r\n")
        with contextlib.suppress(OSError):
            line = await reader.readline()
        writer.close()
        return b" 200 " in line

    def said(self) -> str:
        """The log of the node."""
        return self.log.read_text() if self.log.exists() else ""

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process; harmless where there is none."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            await asyncio.wait_for(process.wait(), READY_S)

    def pause(self) -> None:
        """Stop the process in its tracks, as a machine that hangs."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused process."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Lose the machine."""
        await self.stop(signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FIFO_")}


async def eventually(condition: Callable[[], Awaitable[bool]], problem: str) -> None:
    """Wait for something to be so."""
    until = time.monotonic() + READY_S
    while not await condition():
        assert time.monotonic() < until, problem
        await asyncio.sleep(0.05)


@dataclass
class Typed:
    """The outcome of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def said_by(process: asyncio.subprocess.Process) -> Typed:
    """The outcome of a command that was begun, at its end."""
    out, err = await asyncio.wait_for(process.communicate(), READY_S)
    return Typed(process.returncode or 0, out.decode(), err.decode())


class Machines:
    """Machines by name, and the commands that are typed at the cluster of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.all: dict[str, Machine] = {}

    def __getitem__(self, name: str) -> Machine:
        return self.all[name]

    def new(self, name: str) -> Machine:
        """Set up a machine, whose file is about itself alone."""
        number = len(list(self._folder.iterdir())) if self._folder.exists() else 0
        made = Machine(name, self._folder / f"{number}-{name}")
        # Ports are free until a node listens there: those of a machine that is not started are not.
        while any(set(made.ports) & set(other.ports) for other in self.all.values()):
            made.ports = free_ports(3)
        self.all[name] = made
        made.write()
        return made

    def give(self, name: str, text: str, secret: str) -> None:
        """Give a machine a file that was made for other hosts: each host there is a machine here,
        and each folder one below the machine's own."""
        for one in self.all.values():
            for port, here in {7101: one.client, 7102: one.peer, 7103: one.http}.items():
                text = re.sub(rf'"{one.name}(\.[\w.-]+)?:{port}"', f'"{here}"', text)
        given = self.all[name]
        given.file.write_text(text.replace("/var/lib/fifo", str(given.folder)))
        found = re.search(r'^secret_file = "(.+)"$', text, re.M)
        assert found is not None
        path = given.folder / found[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(secret)

    async def begin(self, count: int) -> list[Machine]:
        """Begin a cluster of so many machines that know each other by their files."""
        made = [self.new(f"n{number + 1}") for number in range(count)]
        for one in made:
            one.write(*(other for other in made if other is not one))
        if count == 1:
            found = await self.typed("cluster", "init", "--config", str(made[0].file),
                                     "--node", made[0].name)  # fmt: skip
            assert found.code == 0, found.err
        for one in made:
            await one.start()
        for one in made:
            await one.serves()
        return made

    def url(self, *names: str) -> str:
        return "fifo://" + ",".join(self.all[name].client for name in names)

    async def typed(self, *words: str, at: str = "") -> Typed:
        """Type a command, at the cluster with this URL."""
        return await said_by(await self.typing(*words, at=at))

    async def typing(self, *words: str, at: str = "") -> asyncio.subprocess.Process:
        """Begin a command, at the cluster with this URL."""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "node", *words, env={**_environment(), "FIFO_URL": at},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def member(self, *words: str, at: str) -> Typed:
        """`fifo member` with these words, which has to succeed."""
        found = await self.typed("member", *words, at=at)
        assert found.code == 0, (words, found.err, {one.name: one.said()[-2000:] for one in
                                                    self.all.values()})  # fmt: skip
        return found

    async def members(self, at: str) -> set[str]:
        """The names of the voters, by `fifo member list`."""
        listed = (await self.member("list", "--json", at=at)).json["members"]
        return {one["name"] for one in listed if not one["learner"]}

    async def leader(self, at: str) -> str:
        """The name of the leader."""
        async with fifo.connect(at) as client:
            return (await client.status()).node

    async def close(self) -> None:
        """Leave no process."""
        for one in self.all.values():
            await one.kill()


@dataclass
class Load:
    """The record of a publisher and a consumer."""

    confirmed: set[int] = field(default_factory=set)
    came: set[int] = field(default_factory=set)
    longest_pause_s: float = 0.0

    @property
    def lost(self) -> set[int]:
        return self.confirmed - self.came


@contextlib.asynccontextmanager
async def load(url: str) -> AsyncIterator[Load]:
    """Publish and consume at the nodes of this URL, and those that they name, meanwhile; in the end
    everything that was confirmed has come."""
    seen, ending = Load(), asyncio.Event()
    async with fifo.connect(url) as client:
        await client.declare(fifo.QueueSpec(QUEUE))
        consuming = asyncio.ensure_future(_consume(url, seen))
        publishing = asyncio.ensure_future(_publish(client, seen, ending))
        try:
            yield seen
            ending.set()
            await asyncio.wait_for(publishing, READY_S)

            async def all_came() -> bool:
                return not seen.lost

            await eventually(all_came, "confirmed messages did not come")
        finally:
            for task in (consuming, publishing):
                task.cancel()
            await asyncio.gather(consuming, publishing, return_exceptions=True)


async def _publish(client: fifo.Client, seen: Load, ending: asyncio.Event) -> None:
    number, last = 0, time.monotonic()
    while not ending.is_set():
        await client.publish(QUEUE, str(number).encode())
        now = time.monotonic()
        seen.confirmed.add(number)
        seen.longest_pause_s = max(seen.longest_pause_s, now - last)
        number, last = number + 1, now
        await asyncio.sleep(0.002)


async def _consume(url: str, seen: Load) -> None:
    async with fifo.connect(url) as client, client.consume(QUEUE) as messages:
        async for message in messages:
            seen.came.add(int(message.body))
            await message.ack()
