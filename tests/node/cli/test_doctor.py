"""`fifo doctor`: each finding provoked by what nodes may say, and the command on a real cluster."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fifo
from fifo.client.views import view
from node.broker.members import NOTES
from node.cli import logged
from node.cli.diagnosis import CHECKS, Seen, diagnose
from node.cli.findings import Severity
from node.config import Address, cluster_config, to_toml
from node.journal import notebook
from node.journal.io.storage import OsStorage
from node.raft import Configuration, Member, encode
from tests.support.cluster import DEADLINE_SECONDS, LOOK_SECONDS, passed, running
from tests.support.users import EVERYTHING, user

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.node.cli.local import Done

NOW_S = 1_800_000_000.0
DAY_MS = 86_400_000
MEMBERS = {f"n{i}": f"10.0.0.{i}:7101" for i in (1, 2, 3)}


def node(name: str, **changes: Any) -> dict[str, Any]:
    """The status of a node in good health."""
    role = "leader" if name == "n1" else "follower"
    good = {
        "node": name, "role": role, "leader": "n1", "members": MEMBERS, "last": 5_000,
        "applied": 5_000, "alarms": [], "disk_free_bytes": 1 << 40, "disk_low_bytes": 1 << 28,
        "fsync_ms": {"p50": 1.0, "p99": 4.0}, "version": "0.1.0", "wall_ms": NOW_S * 1000,
        "connections": 10, "connections_max": 20_000, "descriptors_max": 65_536,
        "certificates": {"client": NOW_S * 1000 + 90 * DAY_MS},
    }  # fmt: skip
    return good | changes


def seen(**changes: Any) -> Seen:
    nodes = [node(name) for name in MEMBERS]
    healthy = Seen(tuple(MEMBERS.values()), nodes, asked_s=(NOW_S, NOW_S + 0.1), tls=True)
    return replace(healthy, **changes)


def with_node(**changes: Any) -> Seen:
    """A cluster whose second node says this."""
    return seen(nodes=[node("n1"), node("n2", **changes), node("n3")])


def of_user(**changes: Any) -> dict[str, Any]:
    none = dict.fromkeys(("declare", "publish", "consume", "manage"), ())
    flags = {"monitor": False, "operate": True, "loopback": False}
    return {"name": "ann", **none, **flags, "tokens": [], "subjects": [], **changes}


def queue(**sent: Any) -> fifo.QueueView:
    return view(fifo.QueueView, {"name": "q", "spec": {"dead_letter": "d"}, **sent})


DOWN = {"role": "down", "error": "connection refused"}
ALARM = {"alarm": "disk_low", "node": "n2", "bytes": 5, "threshold_bytes": 9}


def test_a_healthy_cluster_has_no_finding() -> None:
    assert diagnose(seen()) == []


@pytest.mark.parametrize(
    ("sick", "check", "severity", "place", "words"),
    [
        (
            seen(nodes=[node("n1"), DOWN, node("n3")]),
            "quorum", "error", "n2", "does not answer: connection refused",
        ),
        (
            seen(nodes=[node("n1"), DOWN, node("n3")]),
            "quorum", "error", "cluster", "the loss of one more stops the cluster",
        ),
        (
            seen(nodes=[DOWN, DOWN, node("n3")]),
            "quorum", "error", "cluster", "1 of 3 nodes answer, and 2 are a majority",
        ),
        (
            seen(addresses=["10.0.0.1:7101"], nodes=[node("n1")]),
            "quorum", "advice", "cluster", "asked 1 of 3 nodes",
        ),
        (
            seen(addresses=["a:1"], nodes=[node("n1", members={"n1": "a:1"})]),
            "quorum", "advice", "cluster", "a single node",
        ),
        (
            seen(
                addresses=["a:1", "b:1"],
                nodes=[node(n, members={"n1": "a:1", "n2": "b:1"}) for n in ("n1", "n2")],
            ),
            "quorum", "advice", "cluster", "2 nodes tolerate no more losses than 1",
        ),
        (
            seen(nodes=[node(n, role="follower", leader=None) for n in MEMBERS]),
            "leader", "error", "cluster", "no node leads",
        ),
        (with_node(leader="n3"), "leader", "warning", "cluster", "different leaders: n1, n3"),
        (with_node(applied=10), "log", "warning", "n2", "is 4990 entries behind"),
        (with_node(recovering="n3"), "log", "warning", "n2", "does not count yet: it waits for n3"),
        (with_node(alarms=[ALARM]), "alarms", "error", "n2", "publishes are refused: its disk"),
        (
            with_node(alarms=[{**ALARM, "alarm": "descriptors_low"}]),
            "alarms", "error", "n2", "no descriptor left",
        ),
        (
            with_node(disk_free_bytes=(1 << 28) + 1),
            "room", "warning", "n2", "256.0 MiB are free; below 256.0 MiB publishes are refused",
        ),
        (with_node(fsync_ms={"p99": 80.0}), "disks", "warning", "n2", "takes 80 ms or more"),
        (
            with_node(wall_ms=(NOW_S - 60) * 1000),
            "clocks", "warning", "n2", "1 m 0 s behind this machine's",
        ),
        (
            with_node(wall_ms=(NOW_S + 60) * 1000),
            "clocks", "warning", "n2", "59.9 s ahead of this machine's",
        ),
        (with_node(connections=16_000), "descriptors", "warning", "n2", "16000 of 20000"),
        (
            with_node(descriptors_max=1_024, connections_max=512),
            "descriptors", "advice", "n2", "may open 1024 descriptors, and so takes 512",
        ),
        (
            with_node(version="0.2.0"),
            "versions", "warning", "cluster", "n1 0.1.0, n2 0.2.0, n3 0.1.0",
        ),
        (
            with_node(versions={"used": 1, "finish": {"version": 2}}),
            "versions", "advice", "cluster", "version 1 is in use, and all nodes know 2",
        ),
        (
            with_node(certificates={"peer": NOW_S * 1000 + 5 * DAY_MS}),
            "certificates", "warning", "n2 peer port", "ends on 2027-01-20, in 4 days",
        ),
        (
            with_node(certificates={"client": NOW_S * 1000 - DAY_MS}),
            "certificates", "error", "n2 client port", "has ended on 2027-01-14",
        ),
        (
            seen(users=[of_user(operate=False)]),
            "users", "warning", "user ann", "has no permission",
        ),
        (seen(users=[of_user()]), "users", "advice", "cluster", "one user may operate"),
        (
            seen(users=[of_user(loopback=True)]),
            "users", "warning", "user ann", "every program on a node's machine may operate",
        ),
        (
            seen(users=[of_user(tokens=[{"name": "ci", "ends_ms": 5}])]),
            "users", "advice", "user ann", "has tokens that have ended: ci",
        ),
        (
            with_node(jwt_problem="https://i/keys: answers 503, not the keys"),
            "jwt", "error", "n2", "could not read the keys of the identity provider",
        ),
        (
            seen(has_secret=True, tls=False),
            "users", "warning", "cluster", "travel unencrypted",
        ),
        (
            with_node(undecided=True, differs_index=1024),
            "states", "error", "cluster",
            "the states of the members differ since entry 1024 and none is known to be right",
        ),
        (
            seen(refused=["users: no permission"]),
            "access", "advice", "cluster", "not looked at: users: no permission",
        ),
        (seen(queues=[queue(ready=3)]), "queues", "advice", "queue q", "3 messages wait"),
        (seen(queues=[queue(paused=True)]), "queues", "advice", "queue q", "is paused"),
        (
            seen(queues=[queue(spec={"max_deliveries": None, "dead_letter": None})]),
            "queues", "advice", "queue q", "handed out for ever",
        ),
    ],
)  # fmt: skip
def test_a_finding_is_made_of_what_provokes_it(
    sick: Seen, check: str, severity: str, place: str, words: str
) -> None:
    found = [one for one in diagnose(sick) if words in one.fact]
    assert [(one.check, one.severity.value, one.place) for one in found] == [
        (check, severity, place)
    ]
    assert found[0].fix
    assert check in CHECKS or check == "access"


def with_another(address: str, view: dict[str, Any]) -> Seen:
    """A healthy cluster of three whose URL names one address more."""
    nodes = [*map(node, MEMBERS), view]
    return seen(addresses=[*MEMBERS.values(), address], nodes=nodes)


@pytest.mark.parametrize(
    ("another", "place", "words"),
    [
        (DOWN, "10.0.0.4:7101", "is the address of no member, and none answers there"),
        (node("n4", applied=10, leader="n9"), "n4", "is no member any more"),
        (node("n5", applied=10, leader=None, recovering="n1"), "n5", "is no member yet"),
    ],
)
def test_an_address_of_the_url_is_no_member_for_being_named(
    another: dict[str, Any], place: str, words: str
) -> None:
    """The log has the members: URLs keep the addresses of removed nodes for a while."""
    found = diagnose(with_another("10.0.0.4:7101", another))
    assert [(one.severity.value, one.place, one.fact) for one in found] == [
        ("advice", place, words)
    ]


def test_a_majority_is_one_of_the_members_alone() -> None:
    lost = replace(with_another("10.0.0.4:7101", DOWN), nodes=[node("n1"), DOWN, node("n3"), DOWN])
    facts = [one.fact for one in diagnose(lost) if one.place == "cluster"]
    assert facts == ["2 of 3 nodes answer: the loss of one more stops the cluster"]


def test_a_token_without_an_end_has_not_ended() -> None:
    tokens = [{"name": "a", "ends_ms": None}, {"name": "b", "ends_ms": NOW_S * 1000 + DAY_MS}]
    found = diagnose(seen(users=[of_user(tokens=tokens), of_user(name="bob")]))
    assert found == []


MEMBERSHIP = {
    name: {"peer": f"127.0.0.1:{7101 + 10 * i + 1}", "client": f"127.0.0.1:{7101 + 10 * i}",
           "http": f"127.0.0.1:{7101 + 10 * i + 2}"}
    for i, name in enumerate(("n1", "n2", "n3"))
}  # fmt: skip


def differences(members: dict[str, dict[str, str]], **changes: Any) -> list[tuple[str, str]]:
    """Severity and fact of each difference of a file with three nodes."""
    config = replace(cluster_config(3, 7100, Path("/nowhere")), **changes)
    found = logged.compared(Path("cluster.toml"), config, members)
    return [(str(one.severity), one.fact) for one in found]


def test_a_file_that_differs_from_the_log_is_named_member_by_member() -> None:
    assert differences({}) == []
    assert differences(MEMBERSHIP) == []
    others = {**MEMBERSHIP, "n1": MEMBERSHIP["n1"] | {"peer": "10.0.0.9:7102"}}
    del others["n3"]
    others["n4"] = {"peer": "10.0.0.4:1", "client": "10.0.0.4:2", "http": "10.0.0.4:3"}
    expected = [
        ("warning", "n1 has the peer address 127.0.0.1:7102 in this file, and 10.0.0.9:7102 in the"
                    " log"),
        ("warning", "n3 is in this file, and is no member by the log"),
    ]  # fmt: skip
    outside = [("advice", "n4 (10.0.0.4:1) is a member by the log, and not in this file")]
    assert differences(others) == expected + outside
    assert differences(others, join=(Address("10.0.0.4", 1),)) == expected, "it is about itself"


def test_the_newest_view_of_the_members_is_the_one_that_holds() -> None:
    def view(number: int, port: int) -> dict[str, Any]:
        member = {"name": "n1", "peer": f"h:{port}", "client": "h:1", "http": "h:2"}
        return {"membership": {"number": number, "members": [member]}}

    assert logged.members_said([{}, {"membership": {}}, view(0, 1)]) == {}
    said = logged.members_said([view(2, 7), view(3, 8), view(1, 9)])
    assert said == {"n1": {"peer": "h:8", "client": "h:1", "http": "h:2"}}


def test_a_stopped_node_has_noted_who_the_members_are(tmp_path: Path) -> None:
    config = cluster_config(3, 7100, tmp_path)
    assert logged.members_noted(config.nodes) == {}
    for number, node in enumerate(config.nodes[:2], 1):
        node.data_dir.mkdir(parents=True)
        known = Configuration(number, (Member("n1", ("h", number), "h:1", "h:2", b"j"),))
        notebook.write(OsStorage(node.data_dir), {NOTES: encode(known).hex()})
    said = {"n1": {"peer": "h:2", "client": "h:1", "http": "h:2"}}
    assert logged.members_noted(config.nodes) == said
    assert not config.nodes[2].data_dir.exists()


async def moved(client: fifo.Client, name: str, http: str) -> None:
    """Move a member, which is refused until all nodes of a new cluster have said what they can."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await client.change_members("move", name, http=http)
                return
            except fifo.InvalidArgument:
                await passed(LOOK_SECONDS)


@pytest.mark.cluster
async def test_the_doctor_looks_at_a_real_cluster(cli: Callable[..., Done], tmp_path: Path) -> None:
    root = user("root", **EVERYTHING, operate=True)
    async with running(tmp_path, 3, users=(root, user("ann", consume=("*",)))) as cluster:
        await cluster.leader()
        hosts = ",".join(str(one.client) for one in cluster.config.nodes)

        async def doctor(who: str, *words: str) -> Done:
            url = f"fifo://{who}@{hosts}"
            return await asyncio.to_thread(cli, "doctor", "--url", url, *words)

        async with fifo.connect(f"fifo://root:root-password@{hosts}") as client:
            await client.manage_user("import")
            await client.declare(fifo.QueueSpec("orders", dead_letter="orders.dlq"))
            await moved(client, "n2", "127.0.0.9:9")
        file = tmp_path / "cluster.toml"
        file.write_text(to_toml(cluster.config))
        differs = await doctor("root:root-password", "--config", str(file))
        assert "in this file, and 127.0.0.9:9 in the log" in differs.out
        healthy = await doctor("root:root-password")
        assert re.search(r"^certificates +ok +none ends soon", healthy.out, re.MULTILINE)
        assert "error" not in healthy.out
        assert healthy.code == 0
        done = await doctor("root:root-password", "--json")
        assert {one["check"] for one in done.json["findings"]} <= {
            *("users", "queues", "disks"),
            "versions",  # of a cluster whose third node is not connected yet
        }
        assert "root-password" not in healthy.out + done.out

        (down,) = [one for one in cluster.nodes.values() if not one.leads][:1]
        await down.crash()
        sick = await doctor("root:root-password", "--json")
        errors = [one for one in sick.json["findings"] if one["severity"] == Severity.ERROR]
        assert sick.code == 1
        assert not sick.json["ok"]
        assert [one["place"] for one in errors] == [down.me.name, "cluster"]
        again = await doctor("root:root-password")
        assert f"error: {down.me.name}: does not answer" in again.out
