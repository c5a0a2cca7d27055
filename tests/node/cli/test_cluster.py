"""A real cluster, driven by the commands that people type.

The processes are real, the waits are conditions with deadlines. One cluster serves most tests, so
they run in the order of the file, and each leaves all three nodes running.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from node.cli import session
from node.cli.processes import identify, wait_gone, wait_until
from tests.node.cli.local import ALL_UP, WAIT_S, Local, free_base_port

if TYPE_CHECKING:
    from node.cli.processes import ProcessId

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def test_cluster_start_reports_leader_and_nodes(local: Local) -> None:
    view = local.status()
    base = local.base_port
    assert view["url"] == "fifo://" + ",".join(f"127.0.0.1:{base + 10 * i + 1}" for i in range(3))
    assert view["leader"] in ("n1", "n2", "n3")
    for i, node in enumerate(view["nodes"]):
        assert node["name"] == f"n{i + 1}"
        assert node["client"] == f"127.0.0.1:{base + 10 * i + 1}"
        assert node["peer"] == f"127.0.0.1:{base + 10 * i + 2}"
        assert node["http"] == f"127.0.0.1:{base + 10 * i + 3}"
        assert identify(node["pid"]) is not None
        assert Path(node["data_dir"]).is_dir()


def test_a_second_start_is_refused_and_names_the_stop_command(local: Local) -> None:
    done = local.type("cluster", "start")
    assert done.code == 1
    assert "a cluster is already running in .fifo (n1 pid " in done.line
    assert done.line.endswith("stop it first: fifo cluster stop")
    assert "already running" in local.type("cluster", "clean").line


def test_status_queries_every_node(local: Local) -> None:
    view = local.ok("status", "--json").json
    assert [node["node"] for node in view["nodes"]] == ["n1", "n2", "n3"]
    assert view["leader"] == local.status()["leader"]
    assert all(node["lag"] >= 0 and node["term"] >= 1 for node in view["nodes"])
    table = local.ok("status").out
    assert table.count("follower") == 2
    assert f"peers, as seen by {view['leader']}:" in table
    assert table.count("connected") == 2
    [leading] = [node for node in view["nodes"] if node["node"] == view["leader"]]
    for peer in leading["peers"]:
        assert (peer["connected"], peer["snapshot"]) == (True, None)
        assert peer["match"] > 0
        assert peer["lag"] >= 0
        assert peer["in_flight_bytes"] >= 0
    assert leading["snapshot"]["sent"] == 0


def test_a_queue_is_declared_shown_and_deleted(local: Local) -> None:
    spec = ["--lock", "20s", "--max-deliveries", "3", "--dead-letter", "jobs.dlq"]
    local.ok("queue", "declare", "jobs", *spec)
    local.ok("queue", "declare", "jobs", *spec)
    other = local.type("queue", "declare", "jobs", "--lock", "21s", "--dead-letter", "jobs.dlq")
    assert other.code == 1
    assert "change it: fifo queue update jobs --lock 21s" in other.line
    remedy = other.line.partition("change it: fifo ")[2].split()
    local.ok(*remedy)
    local.ok("queue", "declare", "jobs", "--lock", "21s", "--dead-letter", "jobs.dlq")
    fixed = local.type("queue", "declare", "jobs", "--ordering", "key")
    assert "ordering cannot be changed: delete the queue, or use another name" in fixed.line
    names = [queue["name"] for queue in local.ok("queue", "list", "--json").json]
    assert sorted(names) == ["jobs", "jobs.dlq"]
    assert local.ok("queue", "show", "jobs", "--json").json["name"] == "jobs"
    assert "jobs" in local.ok("queue", "list").out
    local.ok("queue", "delete", "jobs", "--yes")
    local.ok("queue", "delete", "jobs.dlq", "--yes")
    missing = local.type("queue", "show", "jobs")
    assert missing.code == 1
    assert "list the queues: fifo queue list" in missing.line


def test_a_message_keeps_all_its_fields(local: Local) -> None:
    local.ok("queue", "declare", "mail")
    local.ok("publish", "mail", "--body", "hello", "--key", "k", "--header", "a=b=c")
    assert local.process("publish", "mail", "--file", "-", stdin="two\nlines").code == 0
    peeked = local.ok("peek", "mail", "--json").json
    assert [message["body"] for message in peeked] == ["hello", "two\nlines"]
    assert local.ok("queue", "show", "mail", "--json").json["ready"] == 2
    lines = local.ok("consume", "mail", "--count", "2", "--json").out.splitlines()
    first, second = map(json.loads, lines)
    assert (first["body"], first["key"], first["headers"]) == ("hello", "k", {"a": "b=c"})
    assert (first["attempt"], second["body"]) == (1, "two\nlines")
    assert local.ok("queue", "show", "mail", "--json").json["ready"] == 0
    local.ok("queue", "delete", "mail", "--yes")


def test_a_dedup_id_without_a_window_is_warned_of(local: Local) -> None:
    local.ok("queue", "declare", "once")
    forgotten = local.type("publish", "once", "--body", "x", "--dedup-id", "d")
    assert forgotten.code == 0
    assert "fifo queue update once --dedup-window 1h" in forgotten.err
    local.ok("queue", "update", "once", "--dedup-window", "1h")
    local.ok("publish", "once", "--body", "x", "--dedup-id", "d")
    assert local.ok("publish", "once", "--body", "x", "--dedup-id", "d", "--json").json["duplicate"]
    local.ok("queue", "delete", "once", "--yes")


def test_a_file_of_lines_is_published_whole_and_in_order(local: Local) -> None:
    local.ok("queue", "declare", "lines")
    wanted = [f"line {i}" for i in range(3_000)]
    (local.folder / "lines.txt").write_text("\n".join(wanted) + "\n", encoding="utf-8")
    assert local.ok("publish", "lines", "--lines", "lines.txt", "--json").json["published"] == 3_000
    some = local.ok("consume", "lines", "--count", "10").out.splitlines()
    rest = local.ok("consume", "lines", "--count", "2990", "--prefetch", "1000").out.splitlines()
    assert some + rest == wanted
    local.ok("queue", "purge", "lines", "--yes")
    local.ok("queue", "delete", "lines", "--yes")


def test_nack_counts_a_failure_release_does_not_and_terminate_dead_letters(local: Local) -> None:
    local.ok("queue", "declare", "work", "--dead-letter", "work.dlq", "--nack-backoff", "fixed:0s")
    local.ok("publish", "work", "--body", "x")
    local.ok("consume", "work", "--count", "1", "--nack")
    local.ok("consume", "work", "--count", "1", "--release")
    consumed = local.ok("consume", "work", "--count", "1", "--json", "--terminate", "broken")
    (line,) = consumed.out.splitlines()
    message = json.loads(line)
    assert (message["attempt"], message["failures"]) == (3, 1)
    (dead,) = local.ok("peek", "work.dlq", "--json").json
    assert dead["dead_letter"]["reason"] == "terminated"
    assert dead["dead_letter"]["source"] == "work"
    local.ok("queue", "delete", "work", "--yes")
    local.ok("queue", "delete", "work.dlq", "--yes")


def test_the_nack_backoff_of_a_command_comes_from_its_option_the_url_or_the_file(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.ok("queue", "declare", "slow")
    file = local.folder / "client.toml"
    file.write_text('[consumer]\nnack_backoff = "fixed:1h"\nprefetch = 1\n')
    monkeypatch.setenv("FIFO_CONFIG", str(file))
    by_url = ("--url", f"{local.status()['url']}?nack_backoff=fixed:2h")
    by_option = ("--nack-backoff", "fixed:3h")
    for hours, arguments in enumerate([(), by_url, (*by_url, *by_option)], 1):
        local.ok("publish", "slow", "--body", str(hours))
        local.ok("consume", "slow", "--count", "1", "--nack", *arguments)
        due_ms = [one["due_in_ms"] for one in local.ok("delayed", "slow", "--json").json]
        assert len(due_ms) == hours
        assert 3_600_000 * hours - WAIT_S * 1000 < max(due_ms) <= 3_600_000 * hours
    file.write_text('[consumer]\nnack_backof = "fixed:1h"\n')
    wrong = local.type("consume", "slow")
    assert (wrong.code, wrong.line.split(";")[1]) == (2, " did you mean nack_backoff?")
    monkeypatch.delenv("FIFO_CONFIG")
    local.ok("queue", "delete", "slow", "--yes")


def test_a_full_queue_is_an_error_with_a_remedy_and_its_limit_can_be_cleared(local: Local) -> None:
    limits = ("--max-length", "1", "--max-deliveries", "3", "--on-exhausted", "drop")
    local.ok("queue", "declare", "small", *limits)
    local.ok("publish", "small", "--body", "x")
    full = local.type("publish", "small", "--body", "y")
    assert full.code == 1
    assert full.line.endswith("or raise its limit: fifo queue update NAME")
    local.ok("queue", "update", "small", "--max-length", "none", "--max-deliveries", "none")
    spec = local.ok("queue", "show", "small", "--json").json["spec"]
    assert (spec["max_length"], spec["max_deliveries"]) == (None, None)
    local.ok("publish", "small", "--body", "y")
    refused = local.type("queue", "purge", "small")
    assert refused.code == 2
    assert "2 messages of queue small will be deleted; confirm with --yes" in refused.err
    purged = local.ok("queue", "purge", "small", "--yes")
    assert purged.out == "queue small is purged: 2 messages\n"
    local.ok("queue", "delete", "small", "--yes")


def test_a_queue_with_messages_is_deleted_only_after_a_yes(local: Local) -> None:
    local.ok("queue", "declare", "full")
    local.ok("publish", "full", "--body", "x")
    refused = local.type("queue", "delete", "full")
    assert refused.code == 2
    assert "1 message of queue full will be deleted; confirm with --yes" in refused.err
    code, asked = local.at_a_terminal("n\n", "queue", "delete", "full")
    assert code == 1
    assert "1 message of queue full will be deleted. Delete it? [y/N]" in asked
    assert local.ok("queue", "show", "full", "--json").json["ready"] == 1
    assert local.at_a_terminal("y\n", "queue", "delete", "full")[0] == 0
    assert local.ok("queue", "list", "--json").json == []


def test_a_delayed_message_is_shown_with_its_due_time(local: Local) -> None:
    local.ok("queue", "declare", "later")
    local.ok("publish", "later", "--body", "x", "--delay", "1h")
    assert len(local.ok("delayed", "later", "--json").json) == 1
    assert local.ok("locks", "later", "--json").json == []
    assert local.ok("consumers", "later", "--json").json == []
    table = local.ok("delayed", "later").out.splitlines()
    assert table[0].split() == ["id", "cause", "due", "in", "attempt", "failures"]
    assert " 59 m " in table[1]
    nothing = local.type("locks", "later")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "none\n")
    nothing = local.type("consume", "later")
    assert (nothing.code, nothing.out) == (0, "")
    assert (
        nothing.err == "no message received from queue later; inspect it: fifo queue show later\n"
    )
    local.ok("queue", "delete", "later", "--yes")


def test_consume_follow_settles_and_ends_on_ctrl_c(local: Local) -> None:
    local.ok("queue", "declare", "tail")
    local.ok("publish", "tail", "--body", "x")
    with subprocess.Popen(
        local.command("consume", "tail", "--follow"),
        cwd=local.folder,
        env=local.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"x\n"
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=WAIT_S)
    assert (follower.returncode, err) == (0, b"")
    queue = local.ok("queue", "show", "tail", "--json").json
    assert (queue["ready"], queue["locked"]) == (0, 0)
    local.ok("queue", "delete", "tail", "--yes")


def test_leadership_is_transferred_to_the_named_node(local: Local) -> None:
    def leader() -> str:
        nodes = local.ok("status", "--json").json["nodes"]
        return str(next(node["node"] for node in nodes if node["role"] == "leader"))

    first = leader()
    other = next(name for name in ("n1", "n2", "n3") if name != first)
    assert (
        local.ok("transfer-leadership", other).out == f"leadership moved from {first} to {other}\n"
    )
    assert leader() == other
    assert local.ok("transfer-leadership", other).out == f"{other} is already the leader\n"
    unknown = local.type("transfer-leadership", "n9")
    assert unknown.code == 1
    assert "there is no node 'n9'; there are: n1, n2, n3" in unknown.line


def test_a_redrive_is_counted_executed_and_shown(local: Local) -> None:
    local.ok("queue", "declare", "shop", "--dead-letter", "shop.dlq")
    for body in ("one", "two", "three"):
        local.ok("publish", "shop", "--body", body)
    local.ok("consume", "shop", "--count", "3", "--terminate", "broken")
    dry = local.ok("redrive", "shop.dlq", "--dry-run")
    assert dry.out.splitlines() == [
        "3 messages of shop.dlq would be moved",
        "  3 of queue shop",
    ]
    assert local.ok("redrive", "shop.dlq", "--reason", "expired", "--json").json["moved"] == 0
    done = local.ok("redrive", "shop.dlq", "--limit", "1", "--rate", "10/s", "--json").json
    assert (done["status"], done["moved"], done["limit"]) == ("done", 1, 1)
    assert local.ok("queue", "show", "shop", "--json").json["ready"] == 1
    assert "redrive of shop.dlq done: 2 messages moved" in local.ok("redrive", "shop.dlq").out
    assert local.ok("queue", "show", "shop.dlq", "--json").json["redrive"]["moved"] == 2
    assert local.type("redrive", "shop.dlq", "--rate", "6/m").code == 2
    assert local.type("redrive", "shop.dlq", "--reason", "boredom").code == 2
    assert "no redrive" in local.type("redrive", "shop.dlq", "--cancel").line
    local.ok("queue", "delete", "shop", "--yes")
    local.ok("queue", "delete", "shop.dlq", "--yes")


def test_a_move_is_counted_and_reports_the_messages_left(local: Local) -> None:
    for name in ("from", "to", "small"):
        local.ok("queue", "declare", name, *(["--max-length", "2"] if name == "small" else []))
    for body in "abcde":
        local.ok("publish", "from", "--body", body)
    dry = local.ok("move", "from", "to", "--limit", "3", "--dry-run")
    assert "3 messages of from would be moved to to" in dry.out
    assert local.ok("move", "from", "to", "--dry-run", "--json").json == {"messages": 5}
    assert local.ok("queue", "show", "to", "--json").json["ready"] == 0
    assert local.ok("move", "from", "to", "--limit", "1").out.strip() == (
        "1 message moved from from to to"
    )
    partly = local.type("move", "from", "small", "--json")
    assert (partly.code, partly.json) == (1, {"moved": 2, "asked": 4})
    assert "2 of 4 messages were not moved: small is full" in partly.err
    full = local.type("move", "from", "small")
    assert (full.code, full.out) == (1, "0 messages moved from from to small\n")
    assert "fifo queue show small" in full.line
    assert local.ok("move", "from", "to", "--json").json == {"moved": 2, "asked": 2}
    assert local.ok("move", "from", "to").out.strip() == "0 messages moved from from to to"
    bodies = [one["body"] for one in local.ok("peek", "to", "--json").json]
    assert bodies == ["a", "d", "e"]
    assert "fifo queue list" in local.type("move", "from", "nowhere", "--dry-run").line
    assert local.type("move", "to", "to").code == 1
    for name in ("from", "to", "small"):
        local.ok("queue", "delete", name, "--yes")


def test_a_paused_redrive_reports_its_reason(local: Local) -> None:
    local.ok("queue", "declare", "full", "--dead-letter", "full.dlq", "--max-length", "1")
    local.ok("publish", "full", "--body", "dead")
    local.ok("consume", "full", "--count", "1", "--terminate", "broken")
    local.ok("publish", "full", "--body", "in the way")
    waits = local.type("redrive", "full.dlq")
    assert waits.code == 1
    assert "the target 'full' is full" in waits.line
    assert "fifo redrive full.dlq --cancel" in waits.line
    assert "cancelled" in local.ok("redrive", "full.dlq", "--cancel").out
    local.ok("queue", "delete", "full", "--yes")
    local.ok("queue", "delete", "full.dlq", "--yes")


@pytest.mark.parametrize("window", ["1000", "1"])
def test_a_benchmark_reports_rates_latencies_and_machine(local: Local, window: str) -> None:
    before = local.ok("queue", "list", "--json").json
    arguments = ["--seconds", "1", "--warmup", "0.5", "--window", window, "--json"]
    report = local.ok("bench", *arguments).json
    assert report["published_per_second"] > 0
    assert report["acked_per_second"] > 0
    for latency in ("confirm_ms", "end_to_end_ms"):
        assert 0 < report[latency]["p50"] <= report[latency]["p99"]
    assert report["acked"] == report["published"]
    assert report["settings"]["window"] == int(window)
    assert report["settings"]["prefetch"] == "default"
    assert report["settings"]["pace"] == 1000
    assert report["machine"]["cores"] >= 1
    assert local.ok("queue", "list", "--json").json == before


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_an_interrupted_benchmark_leaves_no_worker_and_no_queue(local: Local) -> None:
    with subprocess.Popen(
        local.command("bench", "--seconds", "60"),
        cwd=local.folder,
        env=local.environment,
        stderr=subprocess.PIPE,
    ) as bench:

        def both_work() -> bool:
            queues = local.ok("queue", "list", "--json").json
            return any(queue["consumers"] and queue["counters"]["acked"] for queue in queues)

        assert wait_until(both_work, WAIT_S)
        workers = children_of(bench.pid)
        assert len(workers) == 2
        bench.send_signal(signal.SIGINT)
        _, err = bench.communicate(timeout=WAIT_S)
    assert bench.returncode == 130
    assert err.startswith(b"interrupted; messages so far: ")
    assert wait_gone(workers, WAIT_S) == []
    assert "fifo-bench-" not in local.ok("queue", "list").out


def test_a_killed_leader_is_replaced_and_comes_back_as_a_follower(local: Local) -> None:
    local.ok("queue", "declare", "kept")
    local.ok("publish", "kept", "--body", "still here")
    leader = local.status()["leader"]
    assert "killed; start it again: fifo cluster restart" in local.ok("cluster", "kill", leader).out
    view = local.wait_for("leader", "follower", "down")
    assert view["leader"] != leader
    assert next(n for n in view["nodes"] if n["name"] == leader)["pid"] is None
    nodes = local.ok("status", "--json").json["nodes"]
    assert [(node["node"], node["role"] == "down") for node in nodes] == [
        (name, name == leader) for name in ("n1", "n2", "n3")
    ]
    assert local.ok("consume", "kept", "--count", "1").out == "still here\n"
    done = local.type("cluster", "kill", leader)
    assert done.line.startswith(f"fifo: {leader} is not running; start it: fifo cluster restart")
    assert "follower" in local.ok("cluster", "restart", leader).out
    local.wait_for(*ALL_UP)
    local.ok("queue", "delete", "kept", "--yes")


def test_a_paused_node_is_silent_and_a_resumed_one_answers(local: Local) -> None:
    view = local.status()
    name = next(node["name"] for node in view["nodes"] if node["role"] == "follower")
    local.ok("cluster", "pause", name)
    view = local.wait_for("leader", "follower", "down")
    paused = next(node for node in view["nodes"] if node["name"] == name)
    assert (paused["state"], paused["pid"] is None) == ("paused", False)
    assert "paused" in local.ok("cluster", "status").out
    local.ok("cluster", "resume", name)
    local.wait_for(*ALL_UP)


def test_the_log_reports_that_the_node_is_ready(local: Local) -> None:
    text = local.ok("cluster", "logs", "1").out
    assert f"fifo node n1 ready client=127.0.0.1:{local.base_port + 1}" in text
    assert "Traceback" not in text


def test_a_client_pointed_at_a_dead_cluster_fails_in_bounded_time(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 0.3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"fifo://127.0.0.1:{taken.getsockname()[1]}"
        done = local.type("publish", "q", "--body", "x", "--url", url)
        assert done.code == 1
        assert url in done.line
        assert "no leader within 0.3 s" in done.line
        line = local.type("status", "--url", url).line
        assert f"no node answers at {url}: " in line
        assert "refused;" in line


def test_a_node_started_twice_is_refused(local: Local) -> None:
    config = str(local.folder / ".fifo" / "cluster.toml")
    done = local.process("serve", "--config", config, "--node", "n1")
    assert done.code == 1
    port = local.base_port + 1
    assert f"port {port} (client port of n1) is already in use; stop the process" in done.line


def test_stop_ends_even_a_paused_node_and_the_next_start_has_the_data(local: Local) -> None:
    local.ok("queue", "declare", "durable")
    local.ok("publish", "durable", "--body", "x")
    processes = local.processes()
    local.ok("cluster", "pause", "2")
    assert local.ok("cluster", "stop").out == "stopped 3 nodes\n"
    assert not any(process.alive for process in processes)
    assert [node["role"] for node in local.status()["nodes"]] == ["down"] * 3
    assert local.ok("cluster", "stop").out == "no node was running\n"
    table = local.process("cluster", "start", "--detach").out
    assert "leader" in table
    assert "fifo publish orders --body hello" in table
    assert local.ok("consume", "durable", "--count", "1").out == "x\n"
    local.ok("queue", "delete", "durable", "--yes")


def foreground(folder: Path) -> tuple[Local, subprocess.Popen[str], list[ProcessId]]:
    """A cluster in the foreground, after its leader is there."""
    here = Local(folder, free_base_port())
    started = subprocess.Popen(
        here.command("cluster", "start", "--base-port", str(here.base_port)),
        cwd=folder,
        env=here.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    for line in started.stdout:
        if "Ctrl-C stops all nodes" in line:
            return here, started, here.processes()
    raise AssertionError(started.communicate()[1])


def test_a_damaged_node_of_a_local_cluster_recovers_its_journal(tmp_path: Path) -> None:
    here, started, _ = foreground(tmp_path)
    with started:
        number = 1 + [node["role"] for node in here.status()["nodes"]].index("follower")
        here.ok("queue", "declare", "kept")
        here.ok("cluster", "kill", str(number))
        (segment,) = here.folder.glob(f".fifo/n{number}/data/*.segment")
        data = bytearray(segment.read_bytes())
        data[len(data.rstrip(b"\0")) // 3] ^= 0xFF
        segment.write_bytes(data)
        refused = here.type("cluster", "restart", str(number))
        assert (refused.code, refused.line.count("journal damaged: ")) == (1, 1)
        assert f"run it as fifo cluster restart {number} --recover" in refused.line
        here.ok("cluster", "restart", str(number), "--recover")
        here.wait_for(*ALL_UP)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=WAIT_S)
    assert started.returncode == 0, (out, err)
    assert list(here.folder.glob(f".fifo/n{number}/data/*.lost-*"))


def test_ctrl_c_shuts_a_foreground_cluster_down(tmp_path: Path) -> None:
    here, started, processes = foreground(tmp_path)
    with started:
        number = 1 + [node["role"] for node in here.status()["nodes"]].index("follower")
        here.ok("cluster", "kill", str(number))
        here.ok("cluster", "restart", str(number))
        processes += here.processes()
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=WAIT_S)
    assert started.returncode == 0, (out, err)
    assert f"n{number} ended (signal SIGKILL)" in err
    assert f"n{number} started, pid " in err
    assert not any(process.alive for process in processes)
    here.ok("cluster", "clean", "--yes")
    assert not (tmp_path / ".fifo").exists()


def test_stop_from_another_terminal_ends_a_foreground_cluster(tmp_path: Path) -> None:
    here, started, processes = foreground(tmp_path)
    with started:
        assert here.ok("cluster", "stop").out == "stopped 3 nodes\n"
        started.communicate(timeout=WAIT_S)
    assert started.returncode == 0
    assert not any(process.alive for process in processes)


def test_nodes_die_with_a_foreground_start_that_is_killed(tmp_path: Path) -> None:
    here, started, processes = foreground(tmp_path)
    with started:
        here.ok("cluster", "pause", "2")
        started.kill()
    assert wait_gone(processes, WAIT_S) == []


def test_a_failed_start_leaves_no_node_behind_and_reports_the_reason(tmp_path: Path) -> None:
    here = Local(tmp_path, free_base_port())
    journal = tmp_path / ".fifo" / "n2" / "data"
    journal.mkdir(parents=True)
    (journal / "00000000000000000001.seg").write_bytes(b"somebody else's file")
    done = here.process("cluster", "start", "--detach", "--base-port", str(here.base_port))
    assert done.code == 1
    assert done.line.startswith("fifo: n2 exited at start: ")
    assert not any(process.alive for process in here.processes())


def test_a_single_node_serves_and_shuts_down_on_sigterm(tmp_path: Path) -> None:
    here = Local(tmp_path, free_base_port())
    url = f"127.0.0.1:{here.base_port + 1}"
    with subprocess.Popen(
        here.command("serve", "--base-port", str(here.base_port)),
        cwd=tmp_path,
        env=here.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as node:
        assert node.stderr is not None
        assert "fifo node n1 ready client=" in node.stderr.readline()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FIFO_URL", url)
            here.ok("queue", "declare", "alone")
            here.ok("publish", "alone", "--body", "x")
            assert here.ok("status", "--json").json["leader"] == "n1"
        assert here.ok("consume", "alone", "--count", "1", "--url", f"fifo://{url}").out == "x\n"
        node.send_signal(signal.SIGTERM)
        rest = node.stderr.read()
    assert node.returncode == 0
    assert all(line.startswith("time=") and " level=" in line for line in rest.splitlines()), rest
    assert (tmp_path / ".fifo" / "single").is_dir()


def children_of(pid: int) -> list[ProcessId]:
    """The processes that this one started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    found = [identify(int(child)) for child in listed.split()]
    return [process for process in found if process is not None]
