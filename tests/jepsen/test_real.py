"""A short form of the fault suite: real processes, one cluster at a time.

Owns which few runs stand for `make jepsen` in `make test`. A failure prints where history, logs and
disks lie, and the command that runs the same plan again.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jepsen import namespaces, rooted, starved
from tests.jepsen.checkers.sometimes import sometimes
from tests.jepsen.history import Event
from tests.jepsen.run import Plan, Result, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

needs_power = pytest.mark.skipif(
    rooted.why_not() is not None, reason=rooted.why_not() or "power can be cut here"
)


def carried_out(plan: Plan, folder: Path) -> Result:
    return asyncio.run(run(plan, folder))


def test_locks_hold_while_nodes_and_clients_die_pause_and_part(tmp_path: Path) -> None:
    faults = ("kill", "partition_one_way", "client_pause", "pause_then_kill")
    result = carried_out(Plan("lock", faults, 3, 7.0), tmp_path / "run")
    assert result.good, result.text()
    assert sometimes(result.events)["change of leader"]


@needs_power
def test_nothing_confirmed_is_lost_with_the_power_of_all_nodes(tmp_path: Path) -> None:
    result = carried_out(Plan("queue", ("power_all", "power_majority"), 1, 5.0), tmp_path / "run")
    assert result.good, result.text()
    assert any(event["f"] == "publish" and event["type"] == "ok" for event in result.events)


@pytest.mark.skipif(
    namespaces.why_not() is not None, reason=namespaces.why_not() or "networks can be made here"
)
def test_a_firewall_between_real_networks_loses_nothing(tmp_path: Path) -> None:
    """The command that a failure names; it moves into a network of its own first. The leader that
    no client reaches moves too."""
    command = (
        "-m tests.jepsen --workload key --faults partition,bridge,leader_unreached --seed 3"
        f" --seconds 5 --namespaces --folder {tmp_path}"
    )
    done = subprocess.run(
        [sys.executable, *command.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " in namespaces " in done.stdout
    assert '"leader_unreached"' in (tmp_path / "key-3" / "history.jsonl").read_text()


@needs_power
def test_a_member_that_runs_twice_is_full_or_starved_loses_nothing(tmp_path: Path) -> None:
    faults = ("clone", "clone_disk", "disk_filled", *([] if starved.why_not() else ["oom"]))
    result = carried_out(Plan("queue", faults, 2, 12.0), tmp_path / "run")
    assert result.good, result.text()
    assert sometimes(result.events)["copy beside a member, or in its place"]


def test_members_change_under_load_and_lose_nothing(tmp_path: Path) -> None:
    faults = ("add", "remove", "replace", "move")
    result = carried_out(Plan("queue", faults, 3, 10.0), tmp_path / "run")
    assert result.good, result.text()
    assert sum(event["f"] == "members" for event in result.events) >= 2


FAR_S = 0.1
"""A majority is 50 ms away, each way."""


@pytest.mark.parametrize("where", ["", "--namespaces"])
def test_far_nodes_confirm_after_the_time_that_lies_between_them(
    tmp_path: Path, where: str
) -> None:
    if where and (reason := namespaces.why_not()):
        pytest.skip(reason)
    command = f"-m tests.jepsen --workload queue --lasting far --seed 3 --seconds 4 {where}"
    done = subprocess.run(
        [sys.executable, *command.split(), "--faults", "", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "queue-3" / "history.jsonl").read_text().splitlines()
    times = confirm_times([json.loads(line) for line in lines])
    assert times[len(times) // 2] > FAR_S, times


def confirm_times(events: list[Event]) -> list[float]:
    """The times of confirms that were asked for once the one fault had begun, ascending."""
    began = next(one for one in events if one["f"] == "nemesis" and one["type"] == "info")
    asked = {
        one["value"]["body"]: one["time"]
        for one in events
        if one["f"] == "publish" and one["type"] == "invoke" and one["time"] > began["time"]
    }
    ended = next(one for one in events if one["f"] == "nemesis" and one["type"] == "ok")
    return sorted(
        one["time"] - asked[one["value"]["body"]]
        for one in events
        if one["f"] == "publish"
        and one["type"] == "ok"
        and one["value"].get("body") in asked
        and one["time"] < ended["time"]
    )
