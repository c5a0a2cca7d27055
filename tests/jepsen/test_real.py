"""A short form of the fault suite: real processes, one cluster at a time.

Owns which few runs stand for `make jepsen` in `make test`. A failure prints where history, logs and
disks lie, and the command that runs the same plan again.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jepsen import namespaces, rooted
from tests.jepsen.checkers.sometimes import sometimes
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
