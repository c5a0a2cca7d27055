"""Alarms: two marks, whose resource it is, and the disk of a follower that stops publishers."""

from __future__ import annotations

from pathlib import Path

import pytest

import fifo
from node.broker.alarms import Alarms
from node.config import LimitSettings
from node.raft import Room
from tests.support.cluster import eventually, running

LOW, HIGH = 1000, 2000


def made() -> Alarms:
    return Alarms(LimitSettings(disk_low_bytes=LOW, memory_high_bytes=HIGH), "n1")


def room(free_bytes: int = 10 * LOW, held_bytes: int = 0) -> Room:
    return Room(free_bytes, LOW, held_bytes, HIGH, 1)


def test_an_alarm_ends_a_quarter_past_its_threshold() -> None:
    alarms = made()
    states = []
    for free_bytes in (1001, 999, 1000, 1249, 1250, 1000, 999):
        alarms.measured_disk(free_bytes)
        states.append(bool(alarms.active))
    assert states == [False, True, True, True, False, False, True]
    alarms.measured_disk(10 * LOW)
    states = []
    for held_bytes in (2000, 2001, 2000, 1501, 1500, 2000):
        alarms.measured_memory(held_bytes)
        states.append(bool(alarms.active))
    assert states == [False, True, True, True, False, False]


def test_the_refusal_names_the_member_whose_resource_it_is() -> None:
    alarms = made()
    alarms.reported({"n2": room(), "n3": room(free_bytes=5)})
    assert alarms.refusal == (
        "the disk of n3 is low: 5 bytes free, 1000 required to publish; retry after space was freed"
    )
    assert {alarm.node for alarm in alarms.active} == {"n3"}
    alarms.reported({"n2": room(held_bytes=HIGH + 1), "n3": room()})
    assert alarms.refusal is not None
    assert alarms.refusal.startswith("n2 holds 2001 bytes")


def test_the_alarms_of_a_member_end_when_its_report_counts_no_more() -> None:
    alarms = made()
    alarms.measured_disk(5)
    alarms.reported({"n2": room(free_bytes=5)})
    assert {alarm.node for alarm in alarms.active} == {"n1", "n2"}
    alarms.reported({})
    assert {alarm.node for alarm in alarms.active} == {"n1"}


@pytest.mark.cluster
async def test_a_leader_refuses_publishes_for_the_disk_of_a_follower(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        leader = await cluster.leader()
        small = next(node for node in cluster.nodes.values() if node is not leader)
        async with fifo.connect(f"fifo://{leader.me.client}", timeout=0.5) as client:
            await client.declare(fifo.QueueSpec("orders"))
            await client.publish("orders", b"before", timeout=5.0)
            (message,) = await client.get("orders", 1)
            small.broker.alarms.disk_low_bytes = 1 << 60
            await eventually(lambda: leader.broker.alarms.refusal)
            with pytest.raises(fifo.Overloaded, match=f"the disk of {small.me.name} is low"):
                await client.publish("orders", b"x")
            await message.ack()
            (alarm,) = (await client.status()).alarms
            assert (alarm.alarm, alarm.node) == ("disk_low", small.me.name)
            small.broker.alarms.disk_low_bytes = 0
            await client.publish("orders", b"after", timeout=5.0)
