"""The table of rates: its figures from what drivers count, and real runs of a row."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.loopback import ClusterFailed
from bench.processes import environment
from bench.rates import driver
from bench.rates.__main__ import Figures, main, table_of
from bench.rates.checkout import ROOT, Checkout, figures_of
from bench.rates.rows import (
    ACKED,
    CLIENT_CPU,
    CONFIRM_P50,
    CONFIRM_P99,
    CPU,
    END_P99,
    FOLLOWER_CPU,
    LEADER_CPU,
    PAUSE,
    PUBLISHED,
    ROWS,
)

_WINDOW = "window 100, prefetch 1000"
LONE = {CONFIRM_P50, CONFIRM_P99, CPU, LEADER_CPU, FOLLOWER_CPU, CLIENT_CPU}
SHOWN = {
    "messages": 1_000.0,
    "span_s": 1.9,
    "p50_ms": 1.5,
    "p99_ms": 9.0,
    "pause_s": 0.2,
    "cpu_s": 0.004,
}


def test_figures_are_those_of_the_roles_and_cpu_is_of_all_processes() -> None:
    acked = SHOWN | {"messages": 500.0}
    figures = figures_of({"publish": SHOWN, "consume": acked}, [0.006, 0.002, 0.004], 2.0)
    assert (figures[PUBLISHED], figures[ACKED]) == (500.0, 250.0)
    assert (figures[CONFIRM_P50], figures[END_P99], figures[PAUSE]) == (1.5, 9.0, 0.2)
    assert figures[CPU] == pytest.approx(20.0)  # 4, 4 and 12 ms for the thousand that were sent
    by_process = [figures[name] for name in (LEADER_CPU, FOLLOWER_CPU, CLIENT_CPU)]
    assert by_process == pytest.approx([6.0, 3.0, 8.0])
    assert PUBLISHED not in figures_of({"consume": acked}, [0.0] * 3, 2.0)


def test_the_rate_of_a_consumer_alone_is_over_the_time_that_its_messages_lasted() -> None:
    assert figures_of({"consume": SHOWN | {"span_s": 0.5}}, [0.0] * 3, 2.0)[ACKED] == 2_000.0


async def test_a_confirm_that_never_comes_is_the_pause_up_to_the_end() -> None:
    class Hangs:
        async def publish(self, queue: str, body: bytes) -> None:
            await asyncio.Event().wait()

    job = {"queue": "q", "size": 64, "queues": 0, "role": "survive"}
    figures = driver.Figures()
    load = driver.Load(job, [Hangs()], figures)  # type: ignore[list-item]  # all that is called
    figures.end_ns = time.monotonic_ns() + 20_000_000
    with contextlib.suppress(TimeoutError):
        await load.run()
    assert figures.pause_s >= 0.015


def test_a_pause_that_ended_before_the_leader_was_killed_is_none_of_the_kill() -> None:
    figures = driver.Figures()
    now_ns = time.monotonic_ns()
    figures.kill_ns = now_ns + 60 * 10**9
    figures.pause(now_ns - 10**9)
    assert figures.pause_s == 0.0
    figures.kill_ns = now_ns
    figures.pause(now_ns - 10**6)
    assert 0.001 <= figures.pause_s < 1.0


def test_the_table_has_medians_their_ratio_and_a_dash_where_a_row_did_not_run() -> None:
    old, new = Checkout("old", Path("old"), "python"), Checkout("new", Path("new"), "python")
    rows = [row for row in ROWS if row.name.startswith("window") or row.name.endswith("auto")]
    found: Figures = {
        (_WINDOW, PUBLISHED, "old"): [20_000.0, 10_000.0, 30_000.0],
        (_WINDOW, PUBLISHED, "new"): [40_000.0],
        ("the same, prefetch auto", ACKED, "new"): [0.5],
    }
    assert table_of(found, [old, new], rows) == [
        ["the same, prefetch auto", PUBLISHED, "-", "-", "", ""],
        ["the same, prefetch auto", ACKED, "-", "0.50", "", ""],
        ["the same, prefetch auto", CPU, "-", "-", "", ""],
        [_WINDOW, PUBLISHED, "20,000 (10,000 to 30,000)", "40,000", "x 2.00", "x 1.73"],
        [_WINDOW, ACKED, "-", "-", "", ""],
        [_WINDOW, CPU, "-", "-", "", ""],
        [_WINDOW, CONFIRM_P50, "-", "-", "", ""],
        [_WINDOW, CONFIRM_P99, "-", "-", "", ""],
    ]


def test_a_checkout_without_an_environment_is_refused_with_the_command_that_makes_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(ClusterFailed, match="make setup"):
        Checkout.at(tmp_path)


@pytest.mark.process
def test_a_command_runs_the_modules_of_its_checkout_wherever_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "node.py").write_text("print(__file__)")
    command = Checkout("other", tmp_path, sys.executable).command("-m", "node")
    said = subprocess.check_output(command, cwd=ROOT, text=True)
    assert said.strip() == str(tmp_path / "node.py")


@pytest.mark.process
def test_rows_run_on_a_cluster_of_their_own_and_its_leader_is_killed_at_last() -> None:
    command = [sys.executable, "-m", "bench.rates", "--runs", "1", "--seconds", "1", "--json"]
    done = subprocess.run(
        [*command, "--only", "one confirm at a time", "--only", "leader killed"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["figures"]
    assert {one["figure"] for one in report} == {*LONE, PAUSE}
    assert all(value > 0 for one in report for value in one["values"])


def test_a_row_that_is_not_there_is_refused_with_those_that_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.rates", "--only", "2 publishers"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"\n  {_WINDOW}\n" in capsys.readouterr().err
