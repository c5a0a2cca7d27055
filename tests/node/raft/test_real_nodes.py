"""Three nodes on real sockets and real disks in one process: elect, commit, lose one, go on."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from bench.loopback import free_ports
from node.raft import (
    Journal,
    JournalLocked,
    OsStorage,
    Outcome,
    RaftConfig,
    RaftEnvironment,
    RaftNode,
    TcpTransport,
)
from tests.node.raft.test_transport import until
from tests.support import raft_probe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CLUSTER = b"real nodes test!"


class Owner:
    """A broker's calls of a RaftNode, and no more: turns, coalesced."""

    def __init__(self, name: str, ports: dict[str, int], folder: Path) -> None:
        self.name = name
        self.applied: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._soon = False
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        config = RaftConfig(
            name=name,
            peers={n: ("127.0.0.1", p) for n, p in ports.items() if n != name},
            bind=("127.0.0.1", ports[name]),
            cluster_id=CLUSTER,
            secret=b"secret",
        )
        self.folder = folder / name
        self.folder.mkdir(exist_ok=True)
        journal = Journal.open(OsStorage(self.folder), cluster_id=CLUSTER, node=name)
        self.node = RaftNode(
            config,
            RaftEnvironment(
                journal=journal,
                transport=TcpTransport(config, rng=random.Random()),
                clock=self._loop.time,
                rng=random.Random(),
                apply=lambda index, term, payload: self.applied.append(bytes(payload)),
                before_sync=lambda: None,
                wake=self.wake,
                on_role=lambda role, term: None,
            ),
        )

    async def start(self) -> None:
        await self.node.start()
        self.wake()

    def wake(self) -> None:
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._soon = False
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed:
            self._timer = self._loop.call_later(self.node.turn(), self._turn)

    async def close(self) -> None:
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self.node.close()

    async def commit(self, payload: bytes) -> Outcome:
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self.node.submit([payload], lambda outcome, index: future.set_result(outcome))
        return await asyncio.wait_for(future, 12)


@pytest.fixture
async def owners(tmp_path: Path) -> AsyncIterator[dict[str, Owner]]:
    ports = dict(zip("abc", free_ports(3), strict=True))
    found = {name: Owner(name, ports, tmp_path) for name in ports}
    for owner in found.values():
        await owner.start()
    yield found
    for owner in found.values():
        await owner.close()


async def leader_of(owners: dict[str, Owner]) -> Owner:
    """The node that leads with a lease."""

    now = asyncio.get_running_loop().time

    def leads(owner: Owner) -> bool:
        node = owner.node
        return not owner.closed and node.is_leader and node.lease_until() > now()

    await until(lambda: any(map(leads, owners.values())))
    return next(filter(leads, owners.values()))


async def committing(owners: dict[str, Owner], payloads: list[bytes]) -> Owner:
    """Have a leader commit these; that leader. Where the machine stalls for an election timeout,
    another one may be elected before it has taken them: it says that none is in its log."""
    async with asyncio.timeout(30):
        while True:
            leader = await leader_of(owners)
            outcomes = set(await asyncio.gather(*map(leader.commit, payloads)))
            if outcomes != {Outcome.NOT_LEADER}:
                assert outcomes == {Outcome.COMMITTED}
                return leader


async def test_real_nodes_elect_commit_and_agree(owners: dict[str, Owner]) -> None:
    payloads = [b"%d" % number * 100 for number in range(300)]
    leader = await committing(owners, payloads)
    await until(lambda: all(owner.applied == payloads for owner in owners.values()))
    follower = next(owner for owner in owners.values() if owner is not leader)
    assert await follower.commit(b"not here") is Outcome.NOT_LEADER
    assert follower.node.leader == leader.name
    large = random.Random(1).randbytes(2 * 1024 * 1024 - 1)
    assert await leader.commit(large) is Outcome.COMMITTED
    await until(lambda: all(owner.applied[-1] == large for owner in owners.values()))


async def test_real_nodes_go_on_without_their_leader_and_take_it_back(
    owners: dict[str, Owner], tmp_path: Path
) -> None:
    first = await leader_of(owners)
    assert await first.commit(b"before") is Outcome.COMMITTED
    ports = {name: raft_probe.config(owner.node).bind[1] for name, owner in owners.items()}
    with pytest.raises(JournalLocked):
        Journal.open(OsStorage(first.folder), cluster_id=CLUSTER, node=first.name)
    await first.close()
    second = await leader_of(owners)
    assert await second.commit(b"without") is Outcome.COMMITTED
    back = owners[first.name] = Owner(first.name, ports, tmp_path)
    await back.start()
    assert await second.commit(b"again") is Outcome.COMMITTED
    await until(lambda: back.applied == [b"before", b"without", b"again"])


async def test_a_real_single_node_works_and_remembers(tmp_path: Path) -> None:
    ports = {"a": free_ports(1)[0]}
    for start in range(3):
        owner = Owner("a", ports, tmp_path)
        await owner.start()
        await until(lambda owner=owner: owner.node.is_leader)  # type: ignore[misc]  # bound above
        assert await owner.commit(b"%d" % start) is Outcome.COMMITTED
        await owner.close()
        assert owner.applied == [b"%d" % number for number in range(start + 1)]
