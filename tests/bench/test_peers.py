"""The comparison with other systems: figures, ratios, and what is left out where it is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import __main__ as command
from bench.peers.nats import Nats
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.rounds import FIGURES, LOADS, Measured, figures_of, rows_of
from bench.peers.servers import System
from bench.peers.worker import CONSUMER, PUBLISHER
from bench.processes import environment
from node.cli.histogram import Histogram


def counted(messages: int, *milliseconds: int) -> dict[str, object]:
    histogram = Histogram()
    for one in milliseconds:
        histogram.record(one * 1_000_000)
    return {"messages": messages, "latency": histogram.to_pairs()}


def test_the_figures_of_a_load_add_up_its_workers() -> None:
    """Two publishers and one consumer, over two seconds."""
    figures = figures_of(
        [
            (PUBLISHER, counted(600, 5, 5)),
            (PUBLISHER, counted(400, 7, 9)),
            (CONSUMER, counted(900, 20)),
        ],
        2.0,
    )
    assert figures["published per second"] == 500
    assert figures["acked per second"] == 450
    assert figures["confirm p50 ms"] == pytest.approx(5, rel=0.01)
    assert figures["confirm p99 ms"] == pytest.approx(9, rel=0.01)
    assert figures["end to end p50 ms"] == pytest.approx(20, rel=0.01)


def test_ratios_are_within_a_round_and_say_how_many_times_better_this_project_is() -> None:
    """More of a rate is better, less of a time is."""
    load = LOADS[0].name
    measured: Measured = {
        (load, FIGURES[0], "rabbitmq"): [10.0, 20.0, 10.0],
        (load, FIGURES[0], "fifo"): [40.0, 60.0, 100.0],
        (load, FIGURES[2], "fifo"): [2.0, 2.0, 4.0],
        (load, FIGURES[2], "rabbitmq"): [3.0, 2.0, 2.0],
    }
    rate, ours, _, wait = rows_of(measured)
    assert (rate.system, ours.system) == ("rabbitmq", "fifo")
    assert rate.ratio == (4, 3, 10)
    assert ours.ratio is None
    assert wait.ratio == (1, 0.5, 1.5)


def test_a_load_without_consumers_has_no_figures_of_them() -> None:
    assert set(figures_of([(PUBLISHER, counted(1, 1))], 1.0)) == {
        "published per second",
        "confirm p50 ms",
        "confirm p99 ms",
    }


@pytest.mark.parametrize("system", [RabbitMQ(), Nats(always=False), Nats(always=True)])
def test_what_is_not_installed_is_named_with_its_remedy(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("bench.peers.rabbitmq.PROGRAMS", ())
    good, left_out = command.usable([system])
    assert good == []
    assert "apt-get install" in left_out[0]


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_a_round_runs_and_leaves_nothing(tmp_path: Path) -> None:
    """Of this project alone: the others are not installed everywhere."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.peers", "--only", "fifo", "--rounds", "1", "--json"),
            *("--seconds", "0.5", "--warm-up", "8"),
        ],
        env=environment({"TMPDIR": str(temporary)}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert "fsync" in report["systems"]["fifo"]["durability"]
    rates = [row for row in report["figures"] if row["figure"] == "published per second"]
    assert len(rates) == len(LOADS)
    assert all(row["values"][0] > 0 for row in rates)
    assert list(temporary.iterdir()) == []
