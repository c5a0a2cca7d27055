"""Random schedules of faults over a simulated cluster: drawn from a seed, as data.

Owns what can go wrong and when. A schedule is a list, so a failing one can be cut and replayed:
`run(seed)` repeats it exactly, and `run_plan(plan_of(seed))` one of which the seed also decides the
size of the cluster, the network and the disks. Used by the tests of node/raft and, without end, by
`python -m tests.node.raft`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.raft.errors import RaftError
from node.raft.node import RaftNode
from node.raft.transfer import TransferRefused
from node.testing.disk import PowerCut
from tests.support.raft_world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.raft_world import SimNode

FAULT_SECONDS = 8.0
HEAL_SECONDS = 30.0
REJOIN_SECONDS = 2.5
"""Longer than two election timeouts: who cannot hear the leader has wanted to stand."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: at a time, to a node (and another, for connections)."""

    at: float
    kind: str
    node: str
    other: str
    number: int


KINDS = {
    "submit": 60,
    "kill": 3,
    "power": 3,
    "power_in_turn": 4,
    "power_all": 1,
    "restart": 8,
    "pause": 3,
    "resume": 5,
    "cut": 3,
    "cut_one_way": 3,
    "isolate_leader": 2,
    "heal": 5,
    "break": 4,
    "transfer": 4,
    "slow": 3,
    "disk_fails": 2,
    "raise": 2,
    "apply_fails": 1,
    "unreadable": 1,
    "flood": 2,
    "deafen_leader": 2,
}
"""Kinds of faults, and how often each happens in proportion."""

LOSSES = {"lose_disk": 6}
"""The same, where journals are damaged or gone as well."""

LOSING_SEEDS = 4
"""Of so many seeds in a row, one loses journals: losses crowd out what else happens."""

RARE = 3
"""Kinds of at most this weight are left out of most mixtures, and are common in the others."""

FOLLOWED_BY = {
    "transfer": ("deafen_leader", "pause", "isolate_leader", "power_in_turn", ""),
    "isolate_leader": ("flood", "flood", "submit", "transfer", ""),
}
"""Faults that now and then follow these within a few round trips: harmful in the middle."""

FOLLOWED_WITHIN_SECONDS = (0.008, 0.06)
RESUMED_WITHIN_SECONDS = 2.5


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run as data: what `seed` decides beside the schedule, and the schedule.

    `snapshots` is a place in `SNAPSHOT_BYTES`; `late`: frames of ended connections arrive after
    all, and twice now and then; `slow`: every disk has a speed of its own; `losses`: journals are
    damaged or gone now and then.
    """

    seed: int
    names: str
    late: bool
    slow: bool
    snapshots: int
    losses: bool
    faults: tuple[Fault, ...]


def plan_of(seed: int, *, losses: bool | None = None) -> Plan:
    """Return all that a seed decides; by default also whether journals are lost, one at a time."""
    if losses is None:
        losses = seed % LOSING_SEEDS == LOSING_SEEDS - 2
    rng = random.Random(f"plan {seed}")
    names = rng.choice(("abc", "abc", "abcde"))
    late, slow = rng.random() < 0.6, rng.random() < 0.25
    snapshots = rng.randrange(len(SNAPSHOT_BYTES))
    faults = tuple(draw(seed, names, losses=losses))
    return Plan(seed, names, late, slow, snapshots, losses, faults)


def draw(
    seed: int, names: str, seconds: float = FAULT_SECONDS, *, losses: bool = False
) -> list[Fault]:
    """The schedule of a seed."""
    rng = random.Random(seed)
    mixture = _mixture(rng) | (LOSSES if losses else {})
    kinds, weights = list(mixture), list(mixture.values())
    pace = rng.choice((2.0, 4.0, 12.0, 12.0, 25.0))
    faults = []
    at = 0.3
    while at < seconds:
        node, other = rng.sample(names, 2)
        kind = rng.choices(kinds, weights)[0]
        faults.append(Fault(at, kind, node, other, rng.randint(1, 40)))
        if kind in FOLLOWED_BY and rng.random() < 0.5:
            faults += _behind(rng, faults[-1])
        at += rng.expovariate(pace)
    return sorted(faults, key=lambda fault: fault.at)


def _behind(rng: random.Random, fault: Fault) -> list[Fault]:
    """Return the faults that follow at once."""
    at = fault.at + rng.uniform(0.0, rng.choice(FOLLOWED_WITHIN_SECONDS))
    kind = rng.choice(FOLLOWED_BY[fault.kind])
    found = [Fault(at, kind, fault.node, fault.other, rng.randint(1, 40))] if kind else []
    if kind == "pause":
        at += rng.uniform(0.0, RESUMED_WITHIN_SECONDS)
        found.append(Fault(at, "resume", fault.node, fault.other, 0))
    return found


def _mixture(rng: random.Random) -> dict[str, int]:
    """Each seed has its own: what is rare among everything is common where little else is."""
    if rng.random() < 0.25:
        return KINDS
    common = {kind: weight for kind, weight in KINDS.items() if weight > RARE}
    rare = {kind: 4 * weight for kind, weight in KINDS.items() if weight <= RARE}
    return common | {kind: weight for kind, weight in rare.items() if rng.random() < 0.35}


def power_in_turn(world: World, node: SimNode, operations: int) -> None:
    """Cut the power in the middle of some disk operation, a few from now."""
    left = operations

    def hook(operation: str, name: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            node.storage.hook = None
            raise PowerCut(f"in {operation} of {name}")

    if node.alive:
        node.storage.hook = hook


def disk_fails(node: SimNode, operations: int) -> None:
    """Some write or sync, a few from now, fails: a full disk, or a broken one."""
    left = operations
    number = errno.ENOSPC if operations % 2 else errno.EIO

    def hook(operation: str, name: str) -> None:
        nonlocal left
        left -= operation in ("write", "sync", "create")
        if left <= 0:
            raise OSError(number, os.strerror(number))

    if node.alive and node.stopped is None:
        node.may_stop = True
        node.storage.hook = hook


class ApplyFails(Exception):
    """Error that an apply raises when a schedule says so."""


def apply_fails(node: SimNode) -> None:
    """The next apply of this process raises, in the middle of changing its state."""
    incarnation = node.incarnation

    def hook(payload: bytes) -> None:
        node.apply_hook = None
        if node.incarnation == incarnation:
            raise ApplyFails

    if node.alive and node.stopped is None:
        node.may_stop = True
        node.apply_hook = hook


def unreadable(world: World, node: SimNode) -> None:
    """A restart with a program that cannot read the snapshot: it refuses, or needs none."""
    node.kill()
    node.unreadable = True
    try:
        node.start()
    except RaftError:
        node.refuse_to_start()
    else:
        if node.journal is not None and node.journal.log.first_index > 1:
            world.checks.fail(f"{node.name} runs without the state of its snapshot")
    finally:
        node.unreadable = False


def _flood(world: World, fault: Fault) -> None:
    """Much more than frames in flight can hold, on the leader that is the last to know."""
    leaders = world.leaders
    if leaders and leaders[-1].runs:
        for _ in range(5 * fault.number):
            world.submit(leaders[-1], world.payload(300))


def _submit(world: World, fault: Fault) -> None:
    """Submit a burst to the leader or, now and then, to a node that does not lead."""
    leaders = world.leaders
    target = world.nodes[fault.node] if fault.number % 8 == 0 or not leaders else leaders[0]
    if fault.number % 5 == 0 and leaders:
        target = leaders[-1]
    if target.runs:
        for _ in range(fault.number):
            payload = world.payload(world.rng.choice((1, 20, 300, 1500)))
            world.submit(target, payload, raising=fault.kind == "raise")


def _act(world: World, fault: Fault) -> None:
    node = world.nodes[fault.node]
    network = world.network
    if fault.kind in ("submit", "raise"):
        _submit(world, fault)
    elif fault.kind == "flood":
        _flood(world, fault)
    elif fault.kind == "apply_fails":
        apply_fails(node)
    elif fault.kind == "unreadable":
        unreadable(world, node)
    elif fault.kind in ("kill", "power"):
        node.kill(power=fault.kind == "power")
    elif fault.kind == "power_in_turn":
        power_in_turn(world, node, fault.number % 12 + 1)
    elif fault.kind == "power_all":
        for each in world.nodes.values():
            each.kill(power=True)
        world.start()
    elif fault.kind == "restart":
        for each in world.nodes.values():
            if not each.alive:
                each.start()
                break
    elif fault.kind == "pause" and node.alive:
        node.pause()
    elif fault.kind == "resume":
        for each in world.nodes.values():
            if each.paused:
                each.resume()
                break
    elif fault.kind == "cut":
        network.stop(fault.node, fault.other)
        network.stop(fault.other, fault.node)
    elif fault.kind == "cut_one_way":
        network.stop(fault.node, fault.other)
    elif fault.kind == "isolate_leader" and world.leaders:
        cut = network.abandon if fault.number % 2 else network.isolate
        cut(world.leaders[0].name)
    elif fault.kind == "deafen_leader" and world.leaders:
        for name in world.nodes:
            if name != world.leaders[-1].name:
                network.stop(name, world.leaders[-1].name)
    elif fault.kind == "heal":
        network.heal()
    elif fault.kind == "break":
        network.break_link(fault.node, fault.other)
    elif fault.kind == "lose_disk":
        if not any(each.recovering for each in world.nodes.values()):
            node.lose_disk(damaged=fault.number % 2 == 1)
            world.happened("lost")
    elif fault.kind == "slow":
        node.sync_seconds = (0.0, 0.003, 0.03, 0.3, 1.2)[fault.number % 5]
    elif fault.kind == "disk_fails":
        disk_fails(node, fault.number % 6 + 1)
    elif fault.kind == "transfer" and world.leaders and world.leaders[0].runs:
        with contextlib.suppress(TransferRefused):
            world.leaders[0].node.transfer(fault.node, lambda _: None)


SNAPSHOT_BYTES = (2_500, 9_000, 2_500, 1 << 30)
"""Every few entries, every few bursts, or never."""


def slow_disks(world: World) -> None:
    """Every disk has a speed of its own."""
    for node in world.nodes.values():
        node.sync_seconds = world.rng.choice((0.0, 0.003, 0.02, 0.2, 0.8))


def run_plan(plan: Plan, node_class: type[RaftNode] = RaftNode) -> World:
    """A whole run. Raises AssertionError where something does not hold."""
    return run(
        plan.seed,
        names=plan.names,
        late=plan.late,
        node_class=node_class,
        faults=list(plan.faults),
        prepare=slow_disks if plan.slow else None,
        snapshots=plan.snapshots,
    )


def run(
    seed: int,
    *,
    names: str = "abc",
    late: bool = False,
    node_class: type[RaftNode] = RaftNode,
    faults: list[Fault] | None = None,
    prepare: Callable[[World], None] | None = None,
    snapshots: int | None = None,
    losses: bool = False,
) -> World:
    """Run a whole schedule: faults, healing, and the checks afterwards."""
    world = World(
        names,
        seed=seed,
        node_class=node_class,
        drifting=True,
        batch_bytes=2_000,
        window_bytes=6_000,
        submit_seconds=4.0,
        snapshot_bytes=SNAPSHOT_BYTES[seed % 4 if snapshots is None else snapshots],
        snapshot_chunk_bytes=700,
        slice_steps=1 + seed % 3,
    )
    world.network.late = late
    if prepare is not None:
        prepare(world)
    world.start()
    if faults is None:
        faults = draw(seed, names, losses=losses)
    for fault in faults:
        world.run(max(0.0, fault.at - world.now))
        world.note(f"{fault.kind} {fault.node} {fault.other}")
        _act(world, fault)
        world.checks.look_everywhere()
    settle(world)
    return world


def settle(world: World) -> None:
    """Heal everything and demand what must be so then, in bounded time."""
    world.network.heal()
    for node in world.nodes.values():
        node.storage.hook = node.apply_hook = None
        node.sync_seconds = 0.0
        if node.paused:
            node.resume()
    world.start()
    world.run(5.0)
    world.start()  # A disk that had failed may have been noticed only now.
    world.run_until(lambda: any(node.node.is_leader for node in world.nodes.values()), 10.0)
    world.submit(world.leaders[0], world.payload())
    world.run_until(
        lambda: (
            world.converged()
            and not _open(world)
            and not any(node.recovering for node in world.nodes.values())
        ),
        HEAL_SECONDS,
    )
    world.checks.at_rest()
    rejoin(world)


def rejoin(world: World) -> None:
    """Check that a follower that was cut off comes back and deposes no leader, in any history."""
    if len(world.nodes) < 3:
        return
    leader = world.leaders[0]
    term = leader.node.term
    follower = world.rng.choice([node for node in world.nodes.values() if node is not leader])
    world.network.stop(leader.name, follower.name)
    world.network.stop(follower.name, leader.name)
    world.run(REJOIN_SECONDS)
    world.network.heal()
    world.run(1.0)
    if not leader.node.is_leader or leader.node.term != term:
        world.checks.fail(f"{leader.name} was deposed by {follower.name}, which came back")


def _open(world: World) -> bool:
    return any(not submitted.outcomes for submitted in world.submitted)
