"""An attack beside an honest client, and the facts that must hold after it.

Owns the order of a run and the facts: they are no times, so that a busy machine changes none.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import fifo
from bench.loopback import ClusterFailed, ended, until
from tests.neighbours.field import DYING as DYING_USER
from tests.neighbours.field import TENANT
from tests.neighbours.honest import LOCK_SECONDS, QUEUE, Honest
from tests.neighbours.kinds import (
    DYING,
    GUESSED,
    LEADER_RESTARTED,
    MIX,
    MIXABLE,
    MIXED,
    RELOADED,
    RESTARTED,
    SILENT,
    lasts,
)
from tests.neighbours.nodes import HONEST, Nodes
from tests.neighbours.visitors import Visits

MEMORY_BYTES: Final = 50 << 20
"""A node may have this much more after an attack than before it."""

MEMORY_SECONDS: Final = 30.0
"""Time for a node to give the rest back: sessions of the attack end meanwhile."""

LOG_LINES_MAX: Final = 100
"""Lines that one node may write during an attack, which sends thousands of frames."""

ATTACK_END_SECONDS: Final = 60.0
QUEUE_BYTES: Final = 64 << 20
"""A tenant's queue drops its oldest messages beyond it."""

WARM_BYTES: Final = 512 << 10
WARM_MESSAGES: Final = 160
"""As many bytes as the cache of entries has, and some more."""

_SECRETS: Final = re.compile(r"(honest|tenant|watcher|visitor)-(token|password)|guess \d")

TENANT_QUEUES: Final = ("tenant.queue", "tenant.empty")


@dataclass
class Verdict:
    """Outcome of a kind: broken facts, the honest one's time, and the attacker's cost."""

    kind: str
    seconds: float
    broken: list[str] = field(default_factory=list)
    p99_ms: float = 0.0
    publishes: int = 0
    frames: int = 0
    connections: int = 0
    sent_bytes: int = 0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    says: str = ""


async def prepare(nodes: Nodes) -> None:
    """Declare the queues of both sides, and fill the nodes' caches, which are bounded: what an
    attack leaves behind is more than they hold."""
    async with fifo.connect(nodes.config.url, token=f"{HONEST}-token") as client:
        await client.declare(fifo.QueueSpec(QUEUE, lock=LOCK_SECONDS))
    async with fifo.connect(nodes.config.url, token=f"{TENANT}-token") as client:
        for name in TENANT_QUEUES:
            spec = fifo.QueueSpec(name, max_bytes=QUEUE_BYTES, overflow="drop_oldest")
            await client.declare(spec)
        for _ in range(WARM_MESSAGES):
            await client.publish(TENANT_QUEUES[0], bytes(WARM_BYTES))


async def judge(nodes: Nodes, kind: str, seconds: float, seed: int) -> Verdict:
    """Run one kind for `seconds` beside an honest client."""
    found = Verdict(kind, seconds)
    duration = lasts(kind, seconds)
    plan = await nodes.write_plan()
    term, memory, logs = await nodes.term(), nodes.memory_bytes(), nodes.logs()
    honest = Honest(nodes.config.url)
    try:
        async with honest.working():
            names = attacks_of(kind, seed)
            visits = Visits(nodes.config.url, nodes.visitors if kind in GUESSED else iter(()))
            await visits.in_peace()
            started = [nodes.attack(plan, name, duration, str(seed)) for name in names]
            async with _operated(nodes, kind), visits.going_on():
                for name, (child, cost) in zip(names, started, strict=True):
                    await ended(child, duration + ATTACK_END_SECONDS)
                    _add(found, name, cost)
            if kind == DYING:
                found.says = f"{await nodes.sessions(DYING_USER)} sessions of theirs in the end"
    except (fifo.FifoError, ClusterFailed) as error:
        found.broken.append(f"the run was not carried out: {error}")
    found.p99_ms, found.publishes = honest.p99_ms, len(honest.times)
    found.broken += [f"refused: {one}" for one in honest.refused[:3]]
    found.broken += [f"lost: {one}" for one in honest.lost[:3]]
    found.broken += [f"ended: {one}" for one in nodes.ended()]
    if not nodes.ended():
        later = await nodes.term()
        if later != term and kind != LEADER_RESTARTED:
            found.broken.append(f"an election: term {term} became {later}")
            found.says = "; ".join(_changes(logs, nodes.logs()))
    found.broken += _said(logs, nodes.logs())
    if kind in GUESSED:
        found.broken += visits.broken()
        found.says = "; ".join(filter(None, (found.says, visits.says())))
    await _memory_back(nodes, found, memory)
    await _sessions_ended(nodes, found)
    return found


async def _sessions_ended(nodes: Nodes, found: Verdict) -> None:
    """End what the attack has left open, as an operator can: the next one finds its shares free."""
    try:
        await nodes.end_sessions()
    except (fifo.FifoError, ClusterFailed) as error:
        found.broken.append(f"an operator could not end the sessions: {error}")


@asynccontextmanager
async def _operated(nodes: Nodes, kind: str) -> AsyncIterator[None]:
    """An operator's work beside the attack: it is over when the block is left."""
    if kind == RELOADED:
        reloading = asyncio.ensure_future(nodes.reload())
        try:
            yield
        finally:
            reloading.cancel()
        return
    if kind in (RESTARTED, LEADER_RESTARTED):
        await nodes.restart(leader=kind == LEADER_RESTARTED)
    yield


def attacks_of(kind: str, seed: int) -> list[str]:
    """Names of the attacks that a kind runs at the same time."""
    if kind != MIX:
        return [kind]
    return random.Random(f"mix {seed}").sample(MIXABLE, MIXED)


def _add(found: Verdict, name: str, cost: Path) -> None:
    """Add the cost of one attack, which has to have been carried out."""
    spent = json.loads(cost.read_text())
    if not spent["connections" if name in SILENT else "frames"]:
        found.broken.append(f"{name} has sent nothing: no attack was carried out")
    for name in ("frames", "connections", "sent_bytes", "cpu_seconds"):
        setattr(found, name, getattr(found, name) + spent[name])


def _changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """Changes of role and their causes, and what else was logged about disks and peers."""
    return [
        f"{name}: {line.partition('event=')[2]}"
        for name, lines in after.items()
        for line in lines[len(before[name]) :]
        if "event=role" in line or "event=transfer" in line
    ]


def _said(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """Broken facts about the lines that the nodes have written meanwhile."""
    broken = []
    for name, lines in after.items():
        new = lines[len(before[name]) :]
        broken += [f"{name} wrote a traceback: {line}" for line in new if "Traceback" in line][:1]
        broken += [f"{name} wrote a secret: {line}" for line in new if _SECRETS.search(line)][:1]
        if len(new) > LOG_LINES_MAX:
            broken.append(f"{name} wrote {len(new)} lines, as {new[-1]!r}")
    return broken


async def _memory_back(nodes: Nodes, found: Verdict, before: dict[str, int]) -> None:
    """Wait until every node has given back what the attack took."""

    async def look() -> bool:
        now = nodes.memory_bytes()
        more = [now.get(name, 0) - bytes_before for name, bytes_before in before.items()]
        found.memory_bytes = max(more)
        return found.memory_bytes <= MEMORY_BYTES

    try:
        await until(look, MEMORY_SECONDS, "memory", every_s=0.2)
    except ClusterFailed:
        found.broken.append(f"a node keeps {found.memory_bytes >> 20} MB more than before")
