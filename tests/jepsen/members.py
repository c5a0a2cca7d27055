"""Members that change while all else goes wrong: added, removed, replaced, moved, by an operator.

Owns these nemeses, and the end of a change. One begins in its fault, and leaders, or the node that
comes, are killed amid it; it has to end once nothing else is wrong (`ended`), be it by asking again
where its leader was lost with it. The first node stays, at its address: of the addresses that
programs are given it is the one that lives. A node that was removed runs on for a while, of no
effect, and has to know (`dismissed`). Needs no rights.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import fifo
from fifo.client.membership import MemberAction
from tests.jepsen.cluster import Cluster, RunFailed, until
from tests.jepsen.nemeses import Fault

STAYS = "n1"
"""The node that is neither removed nor moved: programs are given addresses of the first nodes."""

MEMBERS_MIN, MEMBERS_MAX = 3, 6

ENDED_S = 90.0
"""From the end of all other faults until a change is done: some elections, and a snapshot."""

CALL_S = 4.0
LOOK_S = 0.2
WAITS_S = 10.0
"""Patience with a node that comes, until it waits to join; other faults may hold it up longer."""

KNOWS_S = 30.0
"""Until a node that was removed knows it: it dials, again and again, and is answered."""

KILLS = 0.4
"""Part of the changes amid which the leader is killed; of a node that comes, half as many."""

REMOVED = "event=removed"


@dataclass(slots=True)
class Change:
    """A change that is under way: which node comes, goes or moves, and to where."""

    action: MemberAction
    name: str
    replaces: str | None = None
    to: dict[str, str] | None = None
    undone: bool = False

    def reached(self, names: set[str], clients: dict[str, str]) -> bool:
        """Whether members that do not change any more are those that it was to end in."""
        if self.undone:
            return True
        if self.action == "move":
            return self.to is not None and clients.get(self.name) == self.to["client"]
        return (self.name in names) == (self.action != "remove") and self.replaces not in names


@asynccontextmanager
async def add(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A node is added; a change in six is undone."""
    await ended(cluster)
    if len(cluster.names) >= MEMBERS_MAX:
        await _begin(cluster, rng, Change("remove", _victim(cluster, rng)))
        await ended(cluster)
    name = await _comes(cluster)
    await _begin(cluster, rng, Change("add", name, undone=rng.random() < 1 / 6))
    yield [name]


@asynccontextmanager
async def remove(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A member is removed, the leader half of the time."""
    await ended(cluster)
    if len(cluster.names) <= MEMBERS_MIN:
        await _begin(cluster, rng, Change("add", await _comes(cluster)))
        await ended(cluster)
    name = _victim(cluster, rng)
    await _begin(cluster, rng, Change("remove", name))
    yield [name]


@asynccontextmanager
async def replace(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A machine takes the place of another, which may be dead."""
    await ended(cluster)
    old, dead = _victim(cluster, rng), rng.random() < 0.5
    if dead and cluster.runs(old):
        await cluster.kill(old)
    name = await _comes(cluster)
    await _begin(cluster, rng, Change("replace", name, replaces=old))
    yield [old, name]


@asynccontextmanager
async def move(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A member gets other addresses, and no node restarts but itself."""
    await ended(cluster)
    name = _victim(cluster, rng)
    if cluster.runs(name):
        await cluster.kill(name)
    to = await cluster.move(name)
    cluster.start_node(name)
    await _begin(cluster, rng, Change("move", name, to=to))
    yield [name]


def _victim(cluster: Cluster, rng: random.Random) -> str:
    leading = cluster.leading()
    if leading in cluster.names and leading != STAYS and rng.random() < 0.5:
        return str(leading)
    return rng.choice([name for name in cluster.names if name != STAYS])


async def _comes(cluster: Cluster) -> str:
    """Start the node of a new machine, which waits to join."""
    name = await cluster.join()
    by = time.monotonic() + WAITS_S
    while time.monotonic() < by:
        found = await _membership(cluster)
        if found and any(one["name"] == name for one in found["waiting"]):
            break
        await asyncio.sleep(LOOK_S)
    return name


async def _begin(cluster: Cluster, rng: random.Random, change: Change) -> None:
    """Ask for a change; kill the leader, or the node that comes, right behind that."""
    cluster.change = change
    await _ask(cluster, change)
    if change.undone:
        await _call(cluster, "undo", Change("undo", change.name))
    if rng.random() < KILLS and (leader := cluster.leading()) and cluster.runs(leader):
        await cluster.kill(leader)
        cluster.start_node(leader)
    elif change.action in ("add", "replace") and rng.random() < KILLS / 2:
        await cluster.kill(change.name)
        cluster.start_node(change.name)


async def _ask(cluster: Cluster, change: Change) -> None:
    await _call(cluster, change.action, change)


async def _call(cluster: Cluster, action: MemberAction, change: Change) -> None:
    """Ask the leader; what it answers is for the history, and what becomes of it for `ended`."""
    named = {"name": change.name, "replaces": change.replaces}
    cluster.add("invoke", "member", "nemesis", action=action, **named)
    try:
        async with fifo.connect(cluster.members_url(), timeout=CALL_S) as client:
            name = None if action == "undo" else change.name
            to: dict[str, Any] = {"replaces": change.replaces, **(change.to or {})}
            await client.change_members(action, name, **to)
    except fifo.FifoError as error:
        kind = "fail" if isinstance(error, fifo.InvalidArgument) else "info"
        cluster.add(kind, "member", "nemesis", action=action, **named, error=repr(error))
    else:
        cluster.add("ok", "member", "nemesis", action=action, **named)


async def _membership(cluster: Cluster) -> dict[str, Any] | None:
    """The view of the leader; None where none answers."""
    try:
        async with fifo.connect(cluster.members_url(), timeout=CALL_S) as client:
            return dict((await client.status()).membership)
    except fifo.FifoError:
        return None


async def ended(cluster: Cluster) -> None:
    """Wait for the end of the change that is under way, and ask again where it was lost.

    Raises RunFailed where it does not end.
    """
    change: Change | None = cluster.change
    if change is None:
        return
    deadline = time.monotonic() + ENDED_S
    found = None
    while True:
        found = await _membership(cluster) or found
        if found and found["committed"] and not found["wanted"]:
            names = {one["name"] for one in found["members"] if not one["learner"]}
            if change.reached(names, {one["name"]: one["client"] for one in found["members"]}):
                break
            await _ask(cluster, change)
        if time.monotonic() > deadline:
            raise RunFailed(f"the change of members does not end: {change}: {found}")
        await asyncio.sleep(LOOK_S)
    cluster.change = None
    await dismissed(cluster)
    for name in cluster.names[:]:
        if name not in names:
            cluster.part(name)
    cluster.add("ok", "members", "nemesis", names=sorted(names), action=change.action)
    if change.undone and change.name in cluster.former:
        await cluster.forget(change.name)  # It was no member, and waits on to be one.


async def dismissed(cluster: Cluster) -> None:
    """End the nodes that were removed before, which have to know that by now.

    Raises RunFailed where one does not.
    """
    for name in cluster.former[:]:
        cluster.signal(name, signal.SIGCONT)
        cluster.start_node(name)  # One that was down comes back, and is answered.
        log = cluster.children[name].log
        if not await until(lambda log=log: REMOVED in log.read_text(errors="replace"), KNOWS_S):  # type: ignore[misc]
            raise RunFailed(f"{name} was removed, and does not know it")
        cluster.add("ok", "dismissed", "nemesis", node=name)
        await cluster.forget(name)


FAULTS = {
    one.name: one
    for one in (
        Fault("add", add),
        Fault("remove", remove),
        Fault("replace", replace),
        Fault("move", move),
    )
}
