"""A local cluster whose nodes are all dead, or that wants users: how it is started again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.cli.processes import wait_until
from node.config import cluster_config, to_toml
from tests.node.cli.local import ALL_UP, WAIT_S, Local
from tests.support.users import EVERYTHING, user

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def test_a_dead_cluster_is_started_again_node_by_node_or_at_once(here: Local) -> None:
    port = str(here.base_port)
    assert here.process("cluster", "start", "--detach", "--base-port", port).code == 0
    here.ok("queue", "declare", "kept")
    here.ok("publish", "kept", "--body", "still here")
    here.kill_all()

    # Without a second node there is no leader, so the restart must not wait for one.
    first = here.ok("cluster", "restart", "1").out
    assert "n1 started: pid " in first
    assert "waits for another node; restart n2: fifo cluster restart 2; or restart all" in first
    here.ok("cluster", "pause", "1")
    second = here.ok("cluster", "restart", "2").out
    assert "waits for another node; resume n1: fifo cluster resume 1; or" in second
    here.ok("cluster", "resume", "1")
    assert "waits for" not in here.ok("cluster", "restart", "3").out
    here.wait_for(*ALL_UP)

    here.kill_all()
    again = here.process("cluster", "start", "--detach", "--json")
    assert (again.code, again.err) == (0, "")
    assert sorted(node["role"] for node in again.json["nodes"]) == sorted(ALL_UP)
    assert here.ok("consume", "kept", "--count", "1").out == "still here\n"


def test_a_node_that_was_removed_is_not_started_again(here: Local) -> None:
    """Its file names it on; it would wait for ever to be heard."""
    port = str(here.base_port)
    here.ok("cluster", "start", "--detach", "--base-port", port)

    def removed() -> bool:
        """Refused until all nodes of a new cluster have said what they can."""
        return here.type("member", "remove", "n3", "--yes").code == 0

    assert wait_until(removed, WAIT_S)
    here.ok("cluster", "stop")
    again = here.process("cluster", "start", "--detach", "--json")
    assert again.code == 0
    assert "n3 is no member any more (fifo member remove), and is not started" in again.err
    nodes = {node["name"]: node["state"] for node in again.json["nodes"]}
    assert nodes == {"n1": "running", "n2": "running", "n3": "stopped"}
    assert [one["name"] for one in here.ok("member", "list", "--json").json["members"]] == [
        "n1",
        "n2",
    ]


def test_a_cluster_with_users_starts_without_credentials_and_with(here: Local) -> None:
    folder = here.folder / ".fifo"
    folder.mkdir()
    ann = user("ann", **EVERYTHING, monitor=True)
    config = replace(cluster_config(3, here.base_port, folder), users=(ann,))
    (folder / "cluster.toml").write_text(to_toml(config))

    unknown = here.process("cluster", "start", "--detach")
    assert unknown.code == 0
    assert [line.split()[1] for line in unknown.out.splitlines()[1:4]] == ["ready"] * 3
    assert unknown.err.count("runs but reports no status: this cluster needs a user: connect") == 3
    assert here.ok("cluster", "restart", "2").out.endswith(", ready\n")

    here.kill_all()
    assert here.ok("cluster", "restart", "1").out.count("waits for another node") == 1
    here.kill_all()
    url = config.url.replace("fifo://", "fifo://ann:ann-password@")
    known = here.process("cluster", "start", "--detach", "--json", "--url", url)
    assert (known.code, known.err) == (0, "")
    assert sorted(node["role"] for node in known.json["nodes"]) == sorted(ALL_UP)
