"""The load job on real nodes and a real Spark, and where there is no cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from bench.interrupts import Interrupts
from bench.load import sweep
from bench.load.command import Command, parse
from bench.processes import environment
from tests.jepsen import checkers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.shared import SharedCluster


def call(*arguments: str, folder: Path, seconds: float = 220) -> subprocess.CompletedProcess[str]:
    """Run a module as its user would; what it leaves in temporary folders can be seen."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env=environment({"TMPDIR": str(temporary)}),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.fixture
def url(shared_cluster: SharedCluster) -> str:
    """Three nodes, with nothing in them."""
    return shared_cluster.url


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_job_publishes_and_acks_every_message_and_leaves_no_file(
    url: str, tmp_path: Path
) -> None:
    """Two producers and two consumers on Spark, the report as JSON, the history as Parquet."""
    history = tmp_path / "history"
    done = call(
        *("bench.load", "--url", url, "--queue", "load", "--messages", "3001", "--size", "100"),
        *("--producers", "2", "--consumers", "2", "--idle", "1", "--json"),
        *("--history", str(history)),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["published"] == 3001
    assert report["acked"] == 3001
    assert report["redelivered"] == 0
    assert report["published_per_second"] > 0
    assert report["confirm_ms"]["p50"] > 0
    assert [part["role"] for part in report["partitions"]] == [
        *("producer", "producer", "consumer", "consumer")
    ]
    assert report["left"] == {"load": 0}
    events = parquet.read_table(history).sort_by("index").to_pylist()
    assert [event["index"] for event in events] == list(range(report["events"]))
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert checkers.find([{**event, "value": _given(event["value"])} for event in events]) == []
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_sweep_in_several_runs_gives_medians_and_a_page(
    url: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two sizes twice, in turn, each on a queue of its own."""
    monkeypatch.setenv("COLUMNS", "200")
    report = tmp_path / "sweep.html"
    options = parse(
        [
            *("--url", url, "--queue", "swept", "--messages", "300", "--idle", "0.3"),
            *("--producers", "1", "--consumers", "1", "--sweep", "size=100,2000", "--runs", "2"),
            *("--report", str(report)),
        ]
    )
    context = nullcontext(spark.sparkContext)
    code = Command(options, tmp_path / "work", Interrupts(), lambda *_: context).run()
    printed = capsys.readouterr()
    assert code == 0, printed.err
    names = [f"swept-{size}-{run}" for run in (1, 2) for size in (100, 2000)]
    assert re.findall(r"^run \d of 4: (\S+)$", printed.err, re.MULTILINE) == names
    cells = r"^│ (?:100|2,000) +(?:│ [\d.,]+ \([\d.,]+ to [\d.,]+\) +){4}│$"
    assert len(re.findall(cells, printed.out, re.MULTILINE)) == 2, printed.out
    assert " 0.0 " not in printed.out, "every run has rates and latencies"
    page = report.read_text()
    assert "medians of 2 runs" in page
    assert page.count("<svg") == len(sweep.CURVES)


def _given(value: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event that were written down."""
    given = {name: found for name, found in value.items() if found is not None}
    for name in ("spec", "queues"):
        if name in given:
            given[name] = json.loads(given[name])
    return {"reason": None, "delay_s": None, **given}


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_ctrl_c_ends_it_with_the_report_so_far(url: str, tmp_path: Path) -> None:
    """While it publishes at a slow rate; code 130, nothing left behind."""
    workload = tmp_path / "slow.toml"
    workload.write_text(
        "[run]\nproducers = 1\nconsumers = 1\n[[phases]]\nseconds = 600\nrate = 50\n"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "bench.load", "--url", url, "--queue", "slow"),
            *("--workload", str(workload)),
        ],
        env=environment({"TMPDIR": str(temporary)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "confirmed" in line and "lag" in line:
            break
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "published," in said
    assert os.listdir(temporary) == []


@pytest.mark.process
def test_a_cluster_that_is_not_there_is_said_before_spark_starts(tmp_path: Path) -> None:
    """Standard error has one line, and the exit code is 1."""
    done = call(
        "bench.load",
        "--url",
        "fifo://127.0.0.1:1?connect_timeout=1",
        "--queue",
        "q",
        folder=tmp_path,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("the load job failed: ")
    assert done.stderr.count("\n") == 1
