"""Digests of whole states: named by the log's time, made in slices, compared by Raft."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import fifo
from bench.machine_cycle import Cycle
from fifo.machine.contract import Machine, commands
from fifo.machine.limits import BLOCK_MESSAGES
from fifo.words.versions import FIRST, STATES_COMPARED
from node.broker import entry, limits
from node.broker.digests import Digests
from node.broker.machine_host import MachineHost
from node.broker.replay import Replay
from node.raft import Mark
from tests.node.broker.test_replicas import digest, status
from tests.support.cluster import LocalCluster, eventually, running

pytestmark = pytest.mark.slow

PERIOD_MS = 1_000


def payload(stamp_ms: int, command: commands.Command | None = None) -> memoryview:
    """An entry of this time."""
    packed = [entry.pack_command(commands.to_list(command or commands.Lead(1)))]
    parts = entry.pack(packed, [], version=1, stamp_ms=stamp_ms, wall_ms=2)
    return memoryview(b"".join(map(bytes, parts)))


def host_at(version: int) -> tuple[MachineHost, list[int]]:
    """A host whose machine is of this version, and the indexes that it names."""
    host = MachineHost(Machine(), lambda index: memoryview(b""))
    host.machine.state.version = version
    host.digest_ms = PERIOD_MS
    host.digest_at_ms = PERIOD_MS
    named: list[int] = []
    host.name_digest = named.append
    return host, named


TIMES = (10, 990, 1_000, 1_010, 3_500, 3_990, 4_000)


def test_the_first_entry_of_a_period_names_a_digest() -> None:
    host, named = host_at(STATES_COMPARED)
    for index, stamp_ms in enumerate(TIMES, 5):
        host.apply(index, payload(stamp_ms))
    assert named == [7, 9, 11]


def test_a_member_that_begins_with_a_snapshot_names_the_same() -> None:
    first, _ = host_at(STATES_COMPARED)
    for index, stamp_ms in enumerate(TIMES[:4], 5):
        first.apply(index, payload(stamp_ms))
    second, named = host_at(STATES_COMPARED)
    for _ in second.restore(iter((first.machine.snapshot(),))):
        pass
    for index, stamp_ms in enumerate(TIMES[4:], 9):
        second.apply(index, payload(stamp_ms))
    assert named == [9, 11]


def test_no_digest_is_made_before_all_members_know_of_it() -> None:
    host, named = host_at(FIRST)
    for index, stamp_ms in enumerate(TIMES, 5):
        host.apply(index, payload(stamp_ms))
    assert named == []


def test_the_log_applied_once_more_gives_the_same_marks() -> None:
    host, _ = host_at(FIRST)
    replay = Replay(lambda index: memoryview(b""))
    for index, stamp_ms in enumerate(TIMES, 5):
        for one in (host, replay):
            one.apply(index, payload(stamp_ms))
    machine = host.machine
    assert machine.running_hash
    for own in (
        Mark(12, machine.version, machine.running_hash),
        Mark.of_state(11, machine.version, machine.digest()),
    ):
        found: list[Mark] = []

        def made(own: Mark = own, found: list[Mark] = found) -> Iterator[None]:
            found.append((yield from replay.marking(own)))

        for _ in made():
            pass
        assert found == [own]


class Scene:
    """The second member of three, and its clocks."""

    def __init__(self) -> None:
        self.now = 100.0
        self.machine = Machine()
        self.marks: list[Mark] = []
        self.digests = Digests(1, lambda: self.machine, lambda: self.now, self.marks.append)

    def look(self) -> None:
        """Look until the digest is made or given up."""
        for _ in range(1_000):
            self.digests.look(lambda: 0.0)
            if self.digests.made_total + self.digests.given_up_total:
                return

    def changed(self) -> None:
        """Apply an entry that changes the state."""
        host = MachineHost(self.machine, lambda index: memoryview(b""))
        host.apply(9, payload(5, commands.Lead(7)))


def test_the_digest_is_of_the_state_below_the_entry_that_names_it() -> None:
    scene = Scene()
    before = scene.machine.digest()
    scene.digests.named(9)
    scene.changed()
    scene.now += limits.DIGEST_APART_SECONDS
    scene.look()
    (mark,) = scene.marks
    assert mark == Mark.of_state(8, scene.machine.version, before)
    assert mark.whole


def test_the_members_make_it_one_after_the_other() -> None:
    scene = Scene()
    scene.digests.named(9)
    scene.now += limits.DIGEST_APART_SECONDS - 1
    scene.look()
    assert scene.marks == []


def test_a_digest_that_is_not_made_when_the_next_is_due_is_given_up() -> None:
    scene = Scene()
    scene.digests.named(9)
    scene.digests.named(90)
    assert scene.digests.given_up_total == 1
    scene.now += limits.DIGEST_APART_SECONDS
    scene.digests.given_up_total = 0
    scene.look()
    assert [mark.index for mark in scene.marks] == [89]


def test_a_view_that_costs_too_much_memory_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.digests.named(9)
    scene.now += limits.DIGEST_APART_SECONDS
    monkeypatch.setattr(limits, "DIGEST_MESSAGES_MAX", -1)
    scene.look()
    assert (scene.marks, scene.digests.given_up_total) == ([], 1)


def test_a_view_of_a_deep_queue_costs_what_has_left_it_since_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of ten blocks one leaves: a busy queue of millions is compared all the same."""
    scene = Scene()
    cycle = Cycle(BLOCK_MESSAGES // 2, ready=10 * BLOCK_MESSAGES)
    cycle.consumer = cycle.subscribe("worker", 5 * BLOCK_MESSAGES)
    scene.machine = cycle.machine
    monkeypatch.setattr(limits, "DIGEST_MESSAGES_MAX", 2 * BLOCK_MESSAGES)
    before = scene.machine.digest()
    scene.digests.named(9)
    for _ in range(2):
        cycle.settle()
    scene.now += limits.DIGEST_APART_SECONDS
    scene.look()
    assert scene.marks == [Mark.of_state(8, scene.machine.version, before)]
    queue = cycle.machine.queue_overview("q")
    assert queue is not None
    assert queue["messages"] == 9 * BLOCK_MESSAGES

    scene.digests.made_total = 0
    scene.digests.named(90)
    for _ in range(6):
        cycle.settle()
    scene.look()
    assert (len(scene.marks), scene.digests.given_up_total) == (1, 1), "while it waits for its turn"


def test_a_state_that_was_replaced_is_not_compared() -> None:
    scene = Scene()
    scene.digests.named(9)
    scene.digests.replaced()
    scene.now += limits.DIGEST_APART_SECONDS
    scene.look()
    assert scene.marks == []


def compare_often(cluster: LocalCluster) -> None:
    """Have all members make digests each second, and at once."""
    for node in cluster.nodes.values():
        node.broker.digests._wait_s = 0.0
        host = node.broker.host
        host.digest_ms = PERIOD_MS
        host._follow_time(host.machine.cluster_time_ms)


async def test_a_flipped_field_that_no_entry_touches_is_found_and_mended(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster, fifo.connect(cluster.url) as client:
        leader = await cluster.leader()
        await client.declare(fifo.QueueSpec("idle"))
        await client.declare(fifo.QueueSpec("busy"))
        host = leader.broker.host
        await eventually(lambda: host.machine.version >= STATES_COMPARED)
        compare_often(cluster)
        async with asyncio.timeout(30):
            while not all(peer.whole_index for peer in status(leader).peers):
                await client.publish("busy", b"x")
            faulty = cluster.followers()[0]
            state = faulty.broker.host.machine.state
            state.queues[state.queue_names["idle"]].counters["published"] += 1
            installed = status(faulty).counters.snapshots_installed_total
            while status(faulty).counters.snapshots_installed_total == installed:
                await client.publish("busy", b"x")
        await eventually(lambda: status(faulty).applied_index == status(leader).last_index)
        assert digest(faulty) == digest(leader)
        assert not status(faulty).differs_index


async def test_an_idle_cluster_compares_its_states_too(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        leader = await cluster.leader()
        host = leader.broker.host
        await eventually(lambda: host.machine.version >= STATES_COMPARED)
        compare_often(cluster)
        for node in cluster.nodes.values():
            node.broker.host.digest_at_ms -= limits.DIGEST_LATE_MS
        await eventually(lambda: all(peer.whole_index for peer in status(leader).peers))
