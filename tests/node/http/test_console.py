"""The console's word: verdicts, samples, what has changed, and who may see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fifo
from fifo.machine.contract import QueueFigures
from node.http import limits
from node.http.console import verdicts
from node.http.console.pages import POLICY
from node.http.console.samples import COLUMNS, Samples
from node.http.console.watch import Conditions, ConsumerStates
from node.server import Node
from tests.node.http.test_api import basic
from tests.support.cluster import DEADLINE_SECONDS, LocalCluster, eventually, loopback_config
from tests.support.machine import Bench
from tests.support.shared import SharedCluster
from tests.support.users import EVERYTHING, user

# --- verdicts -------------------------------------------------------------------------------------


def node_view(name: str, role: str = "follower", **fields: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "term": 3, "recovering": None, "alarms": [], **fields}


def peer(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "connected": True, "counted": True, "lag": 0, **fields}


def silent(name: str) -> dict[str, Any]:
    return {"name": name, "error": "connection refused"}


def three(n3: Mapping[str, Any] | None = None, **of_n3: Any) -> list[Mapping[str, Any]]:
    peers = [peer("n2"), peer("n3", **of_n3)]
    return [node_view("n1", "leader", peers=peers), node_view("n2"), n3 or node_view("n3")]


def test_a_node_may_be_restarted_while_the_others_are_a_majority_that_keeps_up() -> None:
    assert verdicts.restart(three(), "n2") == {"word": "safe", "why": []}
    assert verdicts.restart(three(), "n1")["word"] == "lead"
    for nodes, why in (
        (three(silent("n3")), "n3 does not answer"),
        (three(connected=False), "n3 has no connection to the leader n1"),
        (three(counted=False), "n3 does not count towards a majority yet"),
        (three(lag=verdicts.LAG_ENTRIES_MAX + 1), "n3 is 1001 entries behind"),
        (three(node_view("n3", recovering="a term")), "n3 gets back a journal that it lost"),
    ):
        assert verdicts.restart(nodes, "n2") == {"word": "wait", "why": [why]}
        assert verdicts.restart(nodes, "n3")["word"] == "safe", "it is of no use as it is"
    assert verdicts.restart([silent("n1"), node_view("n2")], "n2")["why"] == ["no node leads"]
    alone = [node_view("n1", "leader", peers=[])]
    assert verdicts.restart(alone, "n1")["why"] == ["a cluster of 1 stops without any of its nodes"]


def test_a_refusal_names_the_node_the_reason_and_the_longest_time_that_is_known() -> None:
    assert verdicts.refusal(three()) is None
    low = {"alarm": "disk_low", "node": "n3", "bytes": 1, "threshold_bytes": 9, "refuses": True}
    nodes = three(node_view("n3", alarms=[{**low, "active_ms": 90_000}]))
    nodes[0] = {**nodes[0], "alarms": [{**low, "active_ms": 500}]}
    found = verdicts.refusal(nodes)
    assert found is not None
    assert (found["kind"], found["nodes"], found["for_ms"]) == ("disk_low", ["n3"], 90_000)
    nodes[0] = {**nodes[0], "alarms": [{**low, "active_ms": 500, "refuses": False}]}
    assert verdicts.refusal(nodes) is None
    found = verdicts.refusal([silent("n1"), silent("n2"), node_view("n3")])
    assert found is not None
    assert (found["kind"], found["nodes"], found["needed"]) == ("no_majority", ["n1", "n2"], 2)
    found = verdicts.refusal([silent("n1"), node_view("n2"), node_view("n3", "candidate")])
    assert found is not None
    assert (found["kind"], found["nodes"]) == ("no_leader", ["n1"])
    hears = node_view("n2", hears=True)
    assert verdicts.refusal([silent("n1"), hears, silent("n3")]) is None, "asked is not led"


def test_of_two_that_say_they_lead_the_one_of_the_later_term_is_believed() -> None:
    nodes = [node_view("n1", "leader"), node_view("n2", "leader", term=4), node_view("n3")]
    found = verdicts.leader_in(nodes)
    assert found is not None
    assert found["name"] == "n2"


# --- samples --------------------------------------------------------------------------------------


def figures(name: str = "q", ready: int = 0, **counted: int) -> QueueFigures:
    counters = {"published": 0, "delivered": 0, "acked": 0, **counted}
    return QueueFigures(name, ready, 0, 0, 0, None, counters, False, False, None, None)


def test_a_sample_has_depths_and_the_growth_of_counters_since_the_one_before() -> None:
    samples = Samples()
    for at, published in ((0, 1000), (5, 1010), (10, 1040)):
        queue = figures(ready=published, published=published, redelivered_nack=1)
        samples.add(at, 1_000 * at, {7: queue})
    shown = samples.shown(7, 0)
    assert (shown["first"], shown["next"], shown["times_ms"]) == (0, 3, [0, 5_000, 10_000])
    assert set(shown["columns"]) == set(COLUMNS)
    assert shown["columns"]["ready"] == [1000, 1010, 1040]
    assert shown["columns"]["published"] == [0, 10, 30], "what was there before is no event"
    assert samples.rates(7, 12, (1050, 0, 0, 1, 0)) == (5.7, 0, 0, 0, 0), "since the one before"
    assert samples.shown(7, 2)["columns"]["ready"] == [1040]
    assert samples.shown(7, 3)["times_ms"] == []
    assert samples.shown(Samples.ALL, 0)["columns"]["published"] == [0, 10, 30]


def test_samples_are_bounded_in_time_and_queues_and_forget_deleted_ones() -> None:
    samples = Samples()
    many = {n: figures(f"q{n}") for n in range(1, limits.QUEUES_SAMPLED_MAX + 2)}
    samples.add(0, 0, many)
    assert samples.shown(limits.QUEUES_SAMPLED_MAX, 0)["times_ms"] == [0]
    assert samples.shown(limits.QUEUES_SAMPLED_MAX + 1, 0)["times_ms"] == []
    for at in range(1, limits.SAMPLES_MAX + 10):
        samples.add(5 * at, 5_000 * at, {1: figures("q1", ready=at)})
    shown = samples.shown(1, 0)
    assert shown["columns"]["ready"] == list(range(10, limits.SAMPLES_MAX + 10))
    assert shown["times_ms"] == [5_000 * at for at in range(10, limits.SAMPLES_MAX + 10)]
    assert shown["first"] == shown["next"] - limits.SAMPLES_MAX
    assert {len(column) for column in samples._of(1).columns} == {limits.SAMPLES_MAX}
    assert samples.shown(2, 0)["times_ms"] == []


def test_a_condition_has_the_time_at_which_it_was_first_seen_until_it_ends() -> None:
    conditions = Conditions()
    for now_ms, holding in ((1, ["a"]), (2, ["a", "b"]), (3, ["b"]), (4, ["a", "b"])):
        conditions.look(now_ms, holding)
    assert (conditions.since_ms("a"), conditions.since_ms("b")) == (4, 2)
    assert conditions.since_ms("c") is None


def test_a_consumer_has_its_last_states_with_their_beginnings() -> None:
    states = ConsumerStates()
    for now_ms, state in enumerate(("up", "up", "suspected", "disconnected", "up")):
        states.look(now_ms, {7: state})
    assert [(one["since_ms"], one["state"]) for one in states.changes(7)] == [
        (0, "up"),
        (2, "suspected"),
        (3, "disconnected"),
        (4, "up"),
    ]
    states.look(9, {8: "up"})
    assert states.changes(7) == []
    for now_ms in range(20):
        states.look(now_ms, {8: ("up", "suspected")[now_ms % 2]})
    assert len(states.changes(8)) == limits.CONSUMER_CHANGES_MAX


def test_figures_say_whether_a_queue_is_paused_full_and_where_its_dead_go() -> None:
    bench = Bench()
    session = bench.attach()
    bench.declare("dead")
    bench.declare("q", dead_letter="dead", max_length=1, overflow="reject")
    before = bench.machine.queue_figures(2)
    assert before is not None
    assert (before.paused, before.full, before.dead_letter, before.redrive) == (
        False,
        False,
        "dead",
        None,
    )
    bench.publish(session, "q", "x")
    after = bench.machine.queue_figures(2)
    assert after is not None
    assert after.full


# --- over HTTP ------------------------------------------------------------------------------------


async def fetched(node: Node, path: str, **headers: str) -> tuple[int, Any, Mapping[str, str]]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{node.me.http}{path}", headers=headers) as answer,
    ):
        kind = answer.content_type
        body = await (answer.json(content_type=None) if "json" in kind else answer.text())
        return answer.status, body, answer.headers


def rows(feed: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    named = [dict(zip(feed["row"], row, strict=True)) for row in feed["queues"]["rows"]]
    return {row["name"]: row for row in named}


@pytest.mark.slow
async def test_any_node_serves_a_page_that_may_ask_no_other_address(
    shared_cluster: SharedCluster,
) -> None:
    for node in shared_cluster.nodes.values():
        status, page, headers = await fetched(node, "/")
        assert (status, headers["Content-Security-Policy"]) == (200, POLICY)
        assert "default-src 'none'" in POLICY
        again = await fetched(node, "/", **{"If-None-Match": headers["ETag"]})
        assert again[0] == 304
        assert (await fetched(node, "/console/static/style.css"))[0] == 200
        assert (await fetched(node, "/console/static/none.js"))[0] == 404
        assert (await fetched(node, "/console/static/..%2Fpages.py"))[0] == 404
        assert "//" not in page.replace("http://www.w3.org", "")


def test_no_file_of_the_page_names_an_address_elsewhere() -> None:
    folder = Path(verdicts.__file__).parent / "static"
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, file.name
        assert "https:" not in text, file.name


@pytest.mark.slow
async def test_a_browser_gets_what_has_changed_since_its_last_look(
    shared_cluster: SharedCluster,
) -> None:
    await shared_cluster.leader()
    node = shared_cluster.followers()[0]
    async with fifo.connect(shared_cluster.url) as client:
        await client.declare(fifo.QueueSpec("a", dead_letter="a.dlq"))
        await client.declare(fifo.QueueSpec("b"))
        await client.publish("b", b"x")
        await eventually(lambda: node.broker.host.machine.ready("b"))

        async def look(since: int, boot: str, wanted: Callable[[Any], bool]) -> Any:
            """The first answer that is as wanted: a picture is made once a second."""
            path = f"/console/feed?since={since}&boot={boot}"
            async with asyncio.timeout(DEADLINE_SECONDS):
                while True:
                    status, found, _ = await fetched(node, path)
                    assert status == 200
                    if wanted(found):
                        return found

        first = await look(0, "", lambda found: "b" in rows(found) and rows(found)["b"]["ready"])
        assert set(rows(first)) == {"a", "a.dlq", "b"}
        assert rows(first)["a.dlq"]["takes_dead"]
        assert (first["node"], len(first["nodes"])) == (node.me.name, 3)
        assert first["refusal"] is None
        version, boot = first["queues"]["version"], first["boot"]
        await client.delete("b")
        await client.publish("a", b"x")
        gone = rows(first)["b"]["number"]
        later = await look(
            version, boot, lambda found: found["queues"]["gone"] == [gone] and "a" in rows(found)
        )
        assert "b" not in rows(later)
        assert not later["queues"]["whole"]
        latest = later["queues"]["version"]
        quiet = await look(latest, boot, lambda found: found["queues"]["version"] == latest)
        assert (quiet["queues"]["rows"], quiet["queues"]["gone"]) == ([], [])
        for since, process in ((version, "another process"), (10**9, boot)):
            assert (await look(since, process, lambda found: True))["queues"]["whole"]


@pytest.mark.slow
async def test_a_node_that_lost_its_majority_says_so_and_which_nodes_are_missing(
    shared_cluster: SharedCluster,
) -> None:
    await shared_cluster.leader()
    alone, *lost = sorted(shared_cluster.nodes.values(), key=lambda node: node.leads)
    names = sorted(node.me.name for node in lost)
    for name in names:
        await shared_cluster.crash(name)
    async with asyncio.timeout(DEADLINE_SECONDS):
        refusal = None
        while refusal is None or refusal["kind"] != "no_majority":
            _, found, _ = await fetched(alone, "/console/feed")
            refusal = found["refusal"]
    assert (sorted(refusal["nodes"]), refusal["needed"], refusal["of"]) == (names, 2, 3)
    assert {view["restart"]["word"] for view in found["nodes"]} == {"wait"}


@pytest.mark.slow
async def test_the_view_of_a_queue_has_locks_consumers_and_samples(
    shared_cluster: SharedCluster,
) -> None:
    await shared_cluster.leader()
    node = shared_cluster.followers()[0]
    async with fifo.connect(shared_cluster.url, name="worker-1") as client:
        await client.declare(fifo.QueueSpec("orders", lock=60))
        await client.publish("orders", b"x")
        await client.publish("orders", b"y", delay=60)
        (held,) = await client.get("orders")
        status, found, _ = await fetched(node, "/console/feed/queue?name=orders")
        assert status == 200
        (lock,) = found["locks"]
        assert (lock["client"], lock["id"]) == ("worker-1", str(held.id))
        assert 0 < lock["remaining_ms"] <= 60_000
        assert len(found["delayed"]) == len(found["consumers"]) == 1
        assert found["may"]["manage"]
        assert set(found["history"]) == {"next", "first", "times_ms", "columns"}
        status, problem, _ = await fetched(node, "/console/feed/queue?name=nothing")
        assert (status, problem["code"]) == (404, "queue_not_found")


@pytest.mark.cluster
async def test_where_there_are_users_each_sees_the_part_that_is_its_own(tmp_path: Path) -> None:
    config = replace(
        loopback_config(tmp_path, 1),
        users=(user("ann", monitor=True, **EVERYTHING), user("bob", consume=("orders",))),
    )
    cluster = LocalCluster(config)
    try:
        await cluster.start()
        node = await cluster.leader()
        assert (await fetched(node, "/"))[0] == 200, "the form for the log-in"
        assert (await fetched(node, "/console/feed"))[0] == 401
        url = config.url.replace("fifo://", "fifo://ann:ann-password@")
        async with fifo.connect(url) as client:
            for name in ("orders", "secret"):
                await client.declare(fifo.QueueSpec(name))
        _, anns, _ = await fetched(node, "/console/feed", **basic("ann", "ann-password"))
        assert (set(rows(anns)), anns["user"]) == ({"orders", "secret"}, "ann")
        assert anns["monitor"]
        assert [view["name"] for view in anns["nodes"]] == ["n1"]
        _, bobs, _ = await fetched(node, "/console/feed", **basic("bob", "bob-password"))
        assert (set(rows(bobs)), bobs["user"], bobs["monitor"]) == ({"orders"}, "bob", False)
        assert "nodes" not in bobs
        path = "/console/feed/queue?name=orders"
        _, view, _ = await fetched(node, path, **basic("bob", "bob-password"))
        assert (view["may"]["consume"], view["may"]["manage"]) == (True, False)
        status, _, _ = await fetched(
            node, "/console/feed/queue?name=secret", **basic("bob", "bob-password")
        )
        assert status == 403
    finally:
        await cluster.stop()
