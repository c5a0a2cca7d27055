"""Replicas that apply something else: real nodes find it out, and do not let such a one lead."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import fifo
from fifo.machine.contract import Machine, Meta, Outcome, commands
from node.broker import entry
from node.broker.machine_host import MachineHost
from node.raft import Mark, RaftStatus
from node.server import Node
from tests.support.cluster import eventually, running

MARK_ENTRIES = 16


class Erring:
    """A machine's `apply_batch` that settles nothing once, as after a flipped bit."""

    def __init__(self, machine: Machine, token: int = 1 << 20) -> None:
        self._apply_batch = machine.apply_batch
        self._token = token
        self.erred = False

    def __call__(self, meta: Meta, batch: Sequence[commands.Command]) -> Outcome:
        """Apply the batch; its first settlement is of other tokens."""
        if not self.erred:
            batch = [self._wrong(one) if type(one) is commands.Settle else one for one in batch]
        return self._apply_batch(meta, batch)

    def _wrong(self, settle: commands.Settle) -> commands.Settle:
        self.erred = True
        return replace(settle, ranges=((self._token, self._token),))


def status(node: Node) -> RaftStatus:
    """Raft's view of a node that runs."""
    found = node.raft_status()
    assert found is not None
    return found


async def settled_one(client: fifo.Client) -> None:
    """Publish a message and settle it, whatever the leader makes of that."""
    await client.publish("q", b"x")
    async with client.consume("q") as consumer:
        message = await anext(consumer)
        with contextlib.suppress(fifo.LockLost):
            await message.ack()


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["follower", "leader"])
async def test_a_replica_that_erred_is_found_and_gets_the_right_state(
    whose: str, tmp_path: Path
) -> None:
    async with running(tmp_path) as cluster, fifo.connect(cluster.url) as client:
        leader = await cluster.leader()
        for node in cluster.nodes.values():
            node.broker.host.mark_entries = MARK_ENTRIES
            node.broker.host._next_mark = 0
        await client.declare(fifo.QueueSpec("q"))
        while not all(peer.equal_index for peer in status(leader).peers):
            await settled_one(client)
        faulty = leader if whose == "leader" else cluster.followers()[0]
        machine = faulty.broker.host.machine
        erring = machine.apply_batch = Erring(machine)  # type: ignore[method-assign]
        while not erring.erred:
            await settled_one(client)
        unready = set()
        while not status(faulty).counters.snapshots_installed_total:
            await client.publish("q", b"more")
            unready.add(faulty.unready())
        assert "its state is not that of the majority, and is replaced by it" in unready
        now_leads = await cluster.leader()
        if whose == "leader":
            assert now_leads is not faulty
        await eventually(lambda: status(faulty).applied_index == status(now_leads).last_index)
        assert digest(faulty) == digest(now_leads)
        assert (await client.queue("q")).locked == 0


@pytest.mark.slow
async def test_where_all_replicas_differ_those_that_err_are_found_by_their_logs(
    tmp_path: Path,
) -> None:
    """Two of three err in other ways, so no two are equal; each applies its log once more."""
    async with running(tmp_path) as cluster, fifo.connect(cluster.url) as client:
        leader = await cluster.leader()
        for node in cluster.nodes.values():
            node.broker.host.mark_entries = MARK_ENTRIES
            node.broker.host._next_mark = 0
        await client.declare(fifo.QueueSpec("q"))
        while not all(peer.equal_index for peer in status(leader).peers):
            await settled_one(client)
        errings = []
        for number, follower in enumerate(cluster.followers()):
            machine = follower.broker.host.machine
            errings.append(Erring(machine, 1 << 20 + number))
            machine.apply_batch = errings[-1]  # type: ignore[method-assign]
        while not all(erring.erred for erring in errings):
            await settled_one(client)
        followers = cluster.followers()
        while not all(status(one).counters.snapshots_installed_total for one in followers):
            await client.publish("q", b"more")
        assert await cluster.leader() is leader
        for one in followers:
            await eventually(
                lambda one=one: status(one).applied_index == status(leader).last_index  # type: ignore[misc]
            )
            assert digest(one) == digest(leader)


def digest(node: Node) -> bytes:
    """The digest of a node's state."""
    return node.broker.host.machine.digest()


def test_a_mark_comes_between_two_entries_whichever_of_them_is_the_multiple() -> None:
    marks: list[Mark] = []
    host = MachineHost(Machine(), lambda index: memoryview(b""), marked=marks.append)
    host.mark_entries = 10
    hashes = {}
    packed = [entry.pack_command(commands.to_list(commands.Lead(1)))]
    payload = memoryview(b"".join(entry.pack(packed, [], version=1, stamp_ms=1, wall_ms=2)))
    for index in (3, 9, 10, 11, 19, 21, 22, 30):
        hashes[index] = host.machine.running_hash
        host.apply(index, payload)
    assert marks == [
        Mark(at, host.machine.version, hashes[first])
        for at, first in ((10, 10), (20, 21), (30, 30))
    ]


def test_after_a_snapshot_the_next_mark_is_one_that_all_entries_before_are_known_of() -> None:
    marks: list[Mark] = []
    host = MachineHost(Machine(), lambda index: memoryview(b""), marked=marks.append)
    host.mark_entries = 10
    packed = [entry.pack_command(commands.to_list(commands.Lead(1)))]
    payload = memoryview(b"".join(entry.pack(packed, [], version=1, stamp_ms=1, wall_ms=2)))
    host.apply(9, payload)
    for _ in host.restore(iter((host.machine.snapshot(),))):
        pass
    for index in (25, 29, 31):
        host.apply(index, payload)
    assert [mark.index for mark in marks] == [30]
