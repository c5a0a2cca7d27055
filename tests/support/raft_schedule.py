"""Random schedules of faults over a simulated cluster: drawn from a seed, as data.

Owns what can go wrong and when. A schedule is a list, so a failing one can be cut and replayed:
`run(seed)` repeats it exactly. Used by the tests of node/raft and by longer runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.raft.node import RaftNode
from node.raft.transfer import TransferRefused
from tests.support.raft_world import World
from tests.support.simdisk import PowerCut

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.raft_world import SimNode

FAULT_SECONDS = 8.0
HEAL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens: at a time, to a node (and another, for connections)."""

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
}
"""What happens, and how often in proportion."""


def draw(seed: int, names: str, seconds: float = FAULT_SECONDS) -> list[Fault]:
    """The schedule of a seed."""
    rng = random.Random(seed)
    kinds, weights = list(KINDS), list(KINDS.values())
    faults = []
    at = 0.3
    while at < seconds:
        node, other = rng.sample(names, 2)
        kind = rng.choices(kinds, weights)[0]
        faults.append(Fault(at, kind, node, other, rng.randint(1, 40)))
        at += rng.expovariate(12.0)
    return faults


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


def _submit(world: World, fault: Fault) -> None:
    """A burst, on whoever leads or, now and then, on one who does not."""
    leaders = world.leaders
    target = world.nodes[fault.node] if fault.number % 8 == 0 or not leaders else leaders[0]
    if fault.number % 5 == 0 and leaders:
        target = leaders[-1]
    if target.runs:
        for _ in range(fault.number):
            world.submit(target, world.payload(world.rng.choice((1, 20, 300, 1500))))


def _act(world: World, fault: Fault) -> None:
    node = world.nodes[fault.node]
    network = world.network
    if fault.kind == "submit":
        _submit(world, fault)
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
        network.isolate(world.leaders[0].name)
    elif fault.kind == "heal":
        network.heal()
    elif fault.kind == "break":
        network.break_link(fault.node, fault.other)
    elif fault.kind == "slow":
        node.sync_seconds = (0.0, 0.003, 0.03, 0.3, 1.2)[fault.number % 5]
    elif fault.kind == "disk_fails":
        disk_fails(node, fault.number % 6 + 1)
    elif fault.kind == "transfer" and world.leaders and world.leaders[0].runs:
        with contextlib.suppress(TransferRefused):
            world.leaders[0].node.transfer(fault.node, lambda _: None)


def run(
    seed: int,
    *,
    names: str = "abc",
    late: bool = False,
    node_class: type[RaftNode] = RaftNode,
    faults: list[Fault] | None = None,
    prepare: Callable[[World], None] | None = None,
    snapshots: int | None = None,
) -> World:
    """One whole schedule: faults, healing, and what must be so afterwards."""
    world = World(
        names,
        seed=seed,
        node_class=node_class,
        drifting=True,
        batch_bytes=2_000,
        window_bytes=6_000,
        submit_seconds=4.0,
        # Every few entries, every few bursts, or never.
        snapshot_bytes=(2_500, 9_000, 2_500, 1 << 30)[seed % 4 if snapshots is None else snapshots],
        snapshot_chunk_bytes=700,
        slice_steps=1 + seed % 3,
    )
    world.network.late = late
    if prepare is not None:
        prepare(world)
    world.start()
    for fault in draw(seed, names) if faults is None else faults:
        world.run(max(0.0, fault.at - world.now))
        world.note(f"{fault.kind} {fault.node} {fault.other}")
        _act(world, fault)
        world.checks.after_step()
    settle(world)
    return world


def settle(world: World) -> None:
    """Heal everything and demand what must be so then, in bounded time."""
    world.network.heal()
    for node in world.nodes.values():
        node.storage.hook = None
        node.sync_seconds = 0.0
        if node.paused:
            node.resume()
    world.start()
    world.run(5.0)
    world.start()  # A disk that had failed may have been noticed only now.
    world.run_until(lambda: any(node.node.is_leader for node in world.nodes.values()), 10.0)
    world.submit(world.leaders[0], world.payload())
    world.run_until(lambda: world.converged() and not _open(world), HEAL_SECONDS)
    world.checks.at_rest()


def _open(world: World) -> bool:
    return any(not submitted.outcomes for submitted in world.submitted)
