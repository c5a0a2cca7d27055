"""`/metrics` and `/api` of a real cluster after real traffic: every name, and its value."""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fifo
from fifo.client import observe
from fifo.machine import commands
from node.collector import Collector
from node.http import exposition, limits, queue_metrics
from node.http.exposition import Page
from node.server import Node
from node.users import Quota, User
from tests.support.cluster import eventually, loopback_config, passed, running
from tests.support.loop_turns import Spy
from tests.support.machine import Bench
from tests.support.metrics import documented
from tests.support.users import EVERYTHING, user

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]

CONTRACT = [
    "fifo_queue_messages_ready",
    "fifo_queue_messages_locked",
    "fifo_queue_messages_delayed",
    "fifo_queue_bytes",
    "fifo_queue_consumers",
    "fifo_queue_oldest_ready_age_seconds",
    "fifo_queue_oldest_lock_age_seconds",
    "fifo_queue_messages_published_total",
    "fifo_queue_messages_delivered_total",
    "fifo_queue_messages_acked_total",
    "fifo_messages_published_total",
    "fifo_messages_confirmed_total",
    "fifo_messages_delivered_total",
    "fifo_messages_acked_total",
    "fifo_messages_redelivered_total",
    "fifo_messages_dead_lettered_total",
    "fifo_messages_expired_total",
    "fifo_consumer_terms_total",
    "fifo_lock_renewals_total",
    "fifo_lock_timeouts_total",
    "fifo_lock_expiry_lateness_seconds",
    "fifo_raft_term",
    "fifo_raft_commit_index",
    "fifo_raft_last_applied",
    "fifo_raft_is_leader",
    "fifo_raft_recovering",
    "fifo_raft_state_differs",
    "fifo_raft_commit_seconds",
    "fifo_journal_fsync_seconds",
    "fifo_sessions",
    "fifo_request_seconds",
    "fifo_publishes_refused_total",
    "fifo_logins_failed_total",
    "fifo_alarm_active",
    "fifo_disk_free_bytes",
    "fifo_disk_low_bytes",
    "fifo_memory_held_bytes",
    "fifo_memory_high_bytes",
    "fifo_build_info",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
]

COME_LATER = {
    "fifo_snapshot_age_seconds",
    "fifo_gc_collections_total",
    "fifo_gc_seconds_total",
}
"""Of the first snapshot, and of a process that is a node and nothing else."""

SNAPSHOT_BYTES = 1 << 18
"""Of the log, after which a node takes one: a second's work."""

_SAMPLE = re.compile(r"([a-z_]+)(\{.*\})? (\S+)")
_TYPE = re.compile(r"# TYPE ([a-z_]+) (gauge|counter|histogram)")


@dataclass(frozen=True, slots=True)
class Scrape:
    """A page of metrics, taken apart as strictly as a monitoring system would."""

    families: dict[str, str]
    values: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def read(text: str) -> Scrape:
    families: dict[str, str] = {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        kind = _TYPE.fullmatch(line)
        if kind is not None:
            assert kind[1] not in families, f"{kind[1]} comes twice"
            families[kind[1]] = kind[2]
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        name = sample[1]
        family = re.sub("_(bucket|sum|count)$", "", name)
        assert name in families or families.get(family) == "histogram", line
        assert name + (sample[2] or "") not in values, line
        values[name + (sample[2] or "")] = float(sample[3])
    return Scrape(families, values)


@asynccontextmanager
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def scrape(node: Node, **more: Any) -> Scrape:
    async with browser() as client, client.get(f"http://{node.me.http}/metrics", **more) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return read(await answer.text())


async def get(node: Node, path: str, **more: Any) -> tuple[int, Any]:
    """Status and JSON of one GET; redirects are followed."""
    async with browser() as client, client.get(f"http://{node.me.http}{path}", **more) as answer:
        return answer.status, await answer.json()


async def test_every_name_of_the_contract_has_the_value_that_the_traffic_made(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as cluster:
        leader = await cluster.leader()
        followers = [node.me.name for node in cluster.followers()]
        url = "fifo://" + ",".join(str(node.client) for node in cluster.config.nodes)
        async with fifo.connect(url) as client:
            await traffic(client)
            held = [message for message in await client.get("orders", 3) if message.body]
            assert len(held) == 3
            await held[0].renew()
            with pytest.raises(fifo.QueueNotFound):
                await client.publish("nowhere", b"x")
            page = await scrape(leader)
            assert not [name for name in CONTRACT if name not in page.families]
            known = documented()
            for name, kind in page.families.items():
                assert name.startswith("process_") or known[name][0] == kind, name
            assert known.keys() - page.families.keys() == COME_LATER
            expected = {
                'fifo_queue_messages_ready{queue="orders"}': 5,
                'fifo_queue_messages_locked{queue="orders"}': 3,
                'fifo_queue_messages_delayed{queue="orders"}': 1,
                'fifo_queue_messages_ready{queue="orders.dlq"}': 1,
                'fifo_queue_bytes{queue="orders"}': 9 * 10,
                'fifo_queue_consumers{queue="orders",state="up"}': 1,
                'fifo_queue_messages_published_total{queue="orders"}': 12,
                'fifo_queue_messages_delivered_total{queue="orders"}': 7,
                'fifo_queue_messages_acked_total{queue="orders"}': 1,
                'fifo_publishes_refused_total{reason="queue_not_found"}': 1,
                'fifo_request_seconds_count{verb="publish"}': 5,
                'fifo_request_seconds_count{verb="renew"}': 1,
                "fifo_logins_failed_total": 0,
                'fifo_alarm_active{alarm="disk_low"}': 0,
                'fifo_alarm_active{alarm="memory_high"}': 0,
                "fifo_memory_high_bytes": leader.config.limits.memory_high_bytes,
                "fifo_disk_low_bytes": leader.config.limits.disk_low_bytes,
                "fifo_messages_published_total": 12,
                "fifo_messages_confirmed_total": 12,
                "fifo_messages_delivered_total": 3 + 1 + 3,
                "fifo_messages_acked_total": 1,
                'fifo_messages_redelivered_total{cause="nack"}': 1,
                'fifo_messages_redelivered_total{cause="timeout"}': 1,
                'fifo_messages_redelivered_total{cause="released"}': 0,
                'fifo_messages_dead_lettered_total{reason="terminated"}': 1,
                'fifo_messages_dead_lettered_total{reason="expired"}': 0,
                "fifo_messages_expired_total": 1,
                "fifo_consumer_terms_total": 1,
                "fifo_lock_renewals_total": 1,
                "fifo_lock_timeouts_total": 1,
                "fifo_lock_expiry_lateness_seconds_count": 1,
                "fifo_raft_is_leader": 1,
                "fifo_raft_recovering": 0,
                "fifo_raft_state_differs": 0,
                'fifo_sessions{state="connected"}': 1,
                'fifo_sessions{state="disconnected"}': 0,
                "fifo_connections": 1,
                "fifo_raft_truncations_total": 0,
                **{f'fifo_raft_peer_state_differs{{peer="{name}"}}': 0 for name in followers},
            }
            assert {name: page[name] for name in expected} == expected
            for age in ("ready", "lock"):
                assert 0 < page[f'fifo_queue_oldest_{age}_age_seconds{{queue="orders"}}'] < 60
            (build,) = [name for name in page.values if name.startswith("fifo_build_info")]
            assert f'node="{leader.me.name}"' in build
            assert page['fifo_lock_expiry_lateness_seconds_bucket{le="1.0"}'] == 1
            assert 1 <= page["fifo_raft_elections_total"] < 10
            for name in followers:
                assert 0 <= page[f'fifo_raft_peer_lag_entries{{peer="{name}"}}'] < 10
                assert 0 < page[f'fifo_raft_peer_disk_free_bytes{{peer="{name}"}}'] < 1e18
                assert 0 <= page[f'fifo_raft_peer_sync_seconds{{peer="{name}"}}'] < 10
            stretches = [name for name in page.values if name.startswith("fifo_loop_longest_sec")]
            assert stretches, "one kind at least was noted"
            assert all(0 <= page[name] < 10 for name in stretches)
            assert page["fifo_journal_bytes"] > 1000
            status = leader.broker.status()
            assert page["fifo_raft_term"] == status["term"]
            assert page["fifo_raft_last_index"] >= page["fifo_raft_commit_index"]
            assert 10 < page["fifo_raft_commit_index"] <= status["commit"]
            assert page["fifo_raft_last_applied"] == page["fifo_raft_commit_index"]
            assert page["fifo_raft_commit_seconds_count"] >= 10
            assert 0 < page["fifo_raft_commit_seconds_sum"] < 10
            assert page["fifo_journal_fsync_seconds_count"] >= 10
            assert page["process_open_fds"] == pytest.approx(len(os.listdir("/proc/self/fd")), 0.2)
            assert 0 < page["process_resident_memory_bytes"] < 4e9
        follower = cluster.followers()[0]
        page = await scrape(follower)
        leaders = {name for name, (_, by) in known.items() if by == "leader"}
        missing = known.keys() - page.families.keys() - COME_LATER
        assert missing <= leaders, "its own and those of every node are there"
        assert page["fifo_raft_is_leader"] == 0
        assert page["fifo_raft_term"] == status["term"]
        assert page["fifo_messages_confirmed_total"] == 0
        assert page["fifo_messages_published_total"] == 12
        assert page['fifo_queue_messages_published_total{queue="orders"}'] == 12
        assert "fifo_queue_messages_ready" not in page.families
        assert "fifo_sessions" not in page.families


async def test_what_comes_with_time_is_on_the_page_as_well(tmp_path: Path) -> None:
    """A snapshot, a wrong password, a quota that is reached, collections of garbage."""
    ann = user("ann", monitor=True, shares=((Quota.QUEUES, 1),), **EVERYTHING)
    raft = replace(loopback_config(tmp_path, 1).raft, snapshot_bytes=SNAPSHOT_BYTES)
    async with running(tmp_path, 1, users=(ann,), raft=raft) as cluster:
        node = await cluster.leader()
        headers = {"Authorization": basic("ann", "ann-password")}
        page = await scrape(node, headers=headers)
        assert page["fifo_logins_failed_total"] == 0
        assert "fifo_snapshot_age_seconds" not in page.families
        with pytest.raises(fifo.AuthenticationFailed):
            await fifo.connect(f"fifo://ann:wrong@{node.me.client}")
        async with fifo.connect(f"fifo://ann:ann-password@{node.me.client}") as client:
            await client.declare(fifo.QueueSpec("one"))
            with pytest.raises(fifo.LimitReached):
                await client.declare(fifo.QueueSpec("two"))
            await client.publish_many("one", [b"x" * 1000] * (2 * SNAPSHOT_BYTES // 1000))
        with Collector() as node.collector:

            async def all_there() -> bool:
                nonlocal page
                page = await scrape(node, headers=headers)
                return page.families.keys() >= COME_LATER

            await true(all_there)
        node.collector = None
    assert page["fifo_logins_failed_total"] == 1
    assert page['fifo_quota_refused_total{quota="queues"}'] == 1
    assert 0 <= page["fifo_snapshot_age_seconds"] < 60
    for kind in ("recent", "full"):
        assert page[f'fifo_gc_collections_total{{kind="{kind}"}}'] >= 0
        assert page[f'fifo_gc_seconds_total{{kind="{kind}"}}'] >= 0


async def traffic(client: fifo.Client) -> None:
    """Ack a message, nack one with a delay, terminate one, let one expire and one lock run out."""
    await client.declare(
        fifo.QueueSpec("orders", dead_letter="orders.dlq", dead_letter_expired=False)
    )
    await client.publish_many("orders", [b"0123456789"] * 3)
    acked, nacked, ended = await client.get("orders", 3)
    await acked.ack(receipt=True)
    await nacked.nack(delay=60)
    await ended.terminate("bad")
    await client.publish("orders", b"expires", ttl=0.05)
    await client.publish("orders", b"0123456789")

    async def expired() -> bool:
        return bool((await client.queue("orders")).counters["expired"])

    await true(expired)
    await client.get("orders", 1, lock=1)

    async def timed_out() -> bool:
        return bool((await client.queue("orders")).counters["lock_timeouts"])

    await true(timed_out)
    await client.publish_many("orders", [b"0123456789"] * 7)


async def true(look: Any) -> None:
    async with asyncio.timeout(10):
        while not await look():
            await passed(0.02)


def increase(samples: list[float]) -> float:
    """The growth that Prometheus computes: a value that falls has begun again at zero."""
    return sum(after - before if after >= before else after for before, after in pairwise(samples))


async def test_counters_survive_changes_of_leader_and_restarts(
    tmp_path: Path,
) -> None:
    """As `max by (queue) (increase(...))` computes it; the sum counted each return of a leader."""
    per_queue = 'fifo_queue_messages_published_total{queue="orders"}'
    samples: dict[tuple[str, str], list[float]] = {}
    async with running(tmp_path) as cluster:
        url = "fifo://" + ",".join(str(node.client) for node in cluster.config.nodes)

        async def look() -> None:
            for name, node in list(cluster.nodes.items()):
                page = await scrape(node)
                for metric in ("fifo_messages_published_total", per_queue):
                    if metric in page.values:
                        samples.setdefault((metric, name), []).append(page[metric])

        async def level() -> None:
            """All nodes have applied the same."""
            nodes = cluster.nodes.values()
            await eventually(lambda: all(node.shows_totals() for node in nodes))
            await eventually(lambda: len({node.broker.status()["applied"] for node in nodes}) == 1)

        first = (await cluster.leader()).me.name
        other = cluster.followers()[0].me.name
        async with fifo.connect(url, timeout=20) as client:
            await client.declare(fifo.QueueSpec("gone"))
            await client.publish_many("gone", [b"x"] * 7)
            await client.declare(fifo.QueueSpec("orders"))
            await client.publish("orders", b"x")
            await level()
            await look()
            for leader in (other, first, other):
                await client.transfer_leadership(leader)
                await client.publish_many("orders", [b"x"] * 100)
                await level()
                await look()
            await client.delete("gone")
            await look()
            for name in (first, other):
                await cluster.stop(name)
                await client.publish_many("orders", [b"x"] * 50)
                await cluster.start(name)
                while len(samples["fifo_messages_published_total", name]) < 20:
                    await look()  # also while it catches up
                    if cluster.nodes[name].shows_totals():
                        break
                await level()
                await look()
    for metric in ("fifo_messages_published_total", per_queue):
        found = {name: increase(seen) for (one, name), seen in samples.items() if one == metric}
        assert found == dict.fromkeys(("n1", "n2", "n3"), 400.0), metric


async def test_a_scrape_of_many_queues_lets_the_event_loop_run_after_each_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No client waits for more than a piece, whatever the number of queues."""
    bench = Bench(check=False)
    session = bench.attach()
    for number in range(2_500):
        bench.declare(f"q{number}")
    bench.publish(session, "q7", "x", "y")
    bench.subscribe(session, "q7", prefetch=1)
    machine = bench.machine
    work = 0

    def counted(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal work
            work += 1
            return function(*arguments, **named)

        return call

    monkeypatch.setattr(machine, "queue_figures", counted(machine.queue_figures))
    monkeypatch.setattr(machine, "consumer_figures", counted(machine.consumer_figures))
    monkeypatch.setattr("node.http.queue_metrics.labels_of", counted(exposition.labels_of))
    page, pieces, done = Page(), [], False

    async def render() -> None:
        nonlocal done
        await queue_metrics.add_counters(page, machine)
        await queue_metrics.Depths(page, machine, machine.cluster_time_ms).add()
        await queue_metrics.add_sessions(page, machine)
        done = True

    rendering = asyncio.create_task(render())
    while not done:
        before = work
        await asyncio.sleep(0)
        pieces.append(work - before)
    await rendering
    assert sum(pieces) > 2 * 2_500
    assert max(pieces) <= 6 * queue_metrics.QUEUES_PIECE
    found = read(str(page))
    assert found['fifo_queue_messages_ready{queue="q7"}'] == 1
    assert found['fifo_queue_messages_ready{queue="(others)"}'] == 0
    assert found["fifo_messages_published_total"] == 2


async def test_a_queue_that_is_deleted_while_the_page_is_made_is_counted_once() -> None:
    bench = Bench(check=False)
    session = bench.attach()
    for number in range(120):
        bench.declare(f"q{number}")
        bench.publish(session, f"q{number}", "x")
    page = Page()
    making = asyncio.create_task(queue_metrics.add_counters(page, bench.machine))
    await asyncio.sleep(0)
    for name in ("q1", "q110"):  # one that was read, one that was not
        bench.do(commands.DeleteQueue(name))
    await making
    assert read(str(page))["fifo_messages_published_total"] == 120


async def test_totals_do_not_fall_when_a_queue_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with fifo.connect(f"fifo://{node.me.client}") as client:
            for name in ("a", "b"):
                await client.declare(fifo.QueueSpec(name))
                await client.publish_many(name, [b"x"] * 5)
            assert (await scrape(node))["fifo_messages_published_total"] == 10
            await client.delete("a")
            for _ in range(2):
                page = await scrape(node)
                assert page["fifo_messages_published_total"] == 10
            assert 'fifo_queue_messages_ready{queue="a"}' not in page.values


async def test_the_number_of_series_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_metrics, "QUEUES_SHOWN_MAX", 2)
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with fifo.connect(f"fifo://{node.me.client}") as client:
            for name in "abcd":
                await client.declare(fifo.QueueSpec(name))
                await client.publish(name, b"x")
            async with client.consume("d", prefetch=1):
                page = await scrape(node)
        ready = {key: value for key, value in page.values.items() if "messages_ready" in key}
        assert ready == {
            'fifo_queue_messages_ready{queue="a"}': 1,
            'fifo_queue_messages_ready{queue="b"}': 1,
            'fifo_queue_messages_ready{queue="(others)"}': 1,
        }
        assert page['fifo_queue_consumers{queue="(others)",state="up"}'] == 1


async def test_the_api_equals_the_command_line_and_followers_redirect_to_the_leader(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as cluster:
        leader = await cluster.leader()
        follower = cluster.followers()[0]
        async with fifo.connect(f"fifo://{leader.me.client}") as client:
            await client.declare(fifo.QueueSpec("a b/ü", max_length=7))
            await client.publish("a b/ü", b"x")
            for node in (leader, follower):
                assert await get(node, "/api/queues") == (
                    200,
                    [one.as_dict() for one in await client.queues()],
                )
                found = await get(node, "/api/queues/a%20b%2F%C3%BC")
                assert found == (200, (await client.queue("a b/ü")).as_dict())
            assert await get(leader, "/api/queues/none") == (
                404,
                {"error": "there is no queue 'none'"},
            )
            status, said = await get(follower, "/api/status")
            own = await observe(str(follower.me.client))
            assert status == 200
            assert said.keys() == own.keys() | {"address", "lag"}
            assert (said["node"], said["role"]) == (own["node"], "follower")
            assert said["snapshot"] == dict.fromkeys(
                ("index", "state_bytes", "disk_bytes", "kept_bytes", "taken", "sent", "installed"),
                0,
            )
        await cluster.stop(*[name for name in cluster.nodes if cluster.nodes[name] is not leader])
        status, said = await get(leader, "/api/queues")
        assert status == 503


async def test_a_list_of_queues_is_made_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with fifo.connect(cluster.url) as client:
            for number in range(40):
                await client.declare(fifo.QueueSpec(f"q{number}"))
        spy = Spy(monkeypatch, node.broker.host.machine, "queue_overview")
        status, listed = await get(node, "/api/queues")
        spy.stop()
        assert (status, len(listed)) == (200, 40)
        assert max(spy.calls.values()) <= limits.QUEUES_LISTED_PIECE


async def test_nothing_but_reading_is_possible(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster, browser() as client:
        node = await cluster.leader()
        for method in ("POST", "PUT", "DELETE"):
            async with client.request(method, f"http://{node.me.http}/api/queues") as answer:
                assert answer.status == 405


def basic(name: str, password: str) -> str:
    """The header of a browser that asked its user."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def test_the_port_authenticates_where_users_are_configured(tmp_path: Path) -> None:
    ann, bob = user("ann", monitor=True), user("bob", **EVERYTHING)
    async with running(tmp_path, 1, users=(ann, bob)) as cluster:
        node = await cluster.leader()
        assert (await get(node, "/health/live"))[0] == 200
        for path in ("/metrics", "/api/status", "/api/queues", "/nowhere"):
            assert (await get(node, path))[0] == 401
        for given, status in (
            (basic("ann", "ann-password"), 200),
            (basic("ann", "bob-password"), 401),
            (basic("bob", "bob-password"), 403),
            ("Bearer ann-token", 200),
            ("Bearer bob-token", 403),
            ("Bearer unknown-token", 401),
            ("Basic !!!", 401),
            ("Digest x", 401),
        ):
            assert (await get(node, "/api/status", headers={"Authorization": given}))[0] == status
    local = User("local", loopback=True, monitor=True)
    async with running(tmp_path / "2", 1, users=(ann, local)) as cluster:
        assert (await get(cluster.nodes["n1"], "/api/status"))[0] == 200


def test_names_of_queues_cannot_break_the_page() -> None:
    page = Page()
    page.samples("x", "gauge", "text", [({"queue": 'a"b\\c\nd'}, 1)])
    assert str(page).splitlines()[-1] == r'x{queue="a\"b\\c\nd"} 1'
