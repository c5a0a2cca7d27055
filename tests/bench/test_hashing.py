"""The cost of the running hash: a log of real nodes is applied with it and without."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.hashing import Recorded, compare, replayed, replayed_without
from bench.processes import environment
from tests.node.broker.test_digests import TIMES, payload

pytestmark = pytest.mark.slow

ENTRIES = [(index, payload(stamp_ms)) for index, stamp_ms in enumerate(TIMES, 5)]


def test_both_replays_do_the_same_but_for_the_hash() -> None:
    host, taken = replayed(ENTRIES)
    assert host.machine.running_hash
    assert taken > 0.0
    assert replayed_without(ENTRIES) > 0.0
    assert replayed(ENTRIES)[0].machine.running_hash == host.machine.running_hash


def test_the_share_is_of_three_nodes_beside_the_cpu_of_all() -> None:
    cost = compare("row", Recorded(ENTRIES, 2 * len(ENTRIES), 50.0), 3)
    assert (cost.row, cost.per_entry, cost.cpu_us) == ("row", 2.0, 50.0)
    assert cost.share.median == pytest.approx(cost.hash_us.median * 3 / 50.0 * 100)


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_a_log_of_real_nodes_is_recorded_and_compared() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.hashing", "one confirm at a time"),
            *("--seconds", "0.5", "--pairs", "2", "--json"),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["row"] == "one confirm at a time"
    assert row["per_entry"] > 0.5
    assert row["cpu_us"] > 0
