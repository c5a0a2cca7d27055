"""The load job on real nodes and a real Spark, and where there is no cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.cluster import free_base_port
from bench.processes import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def call(*arguments: str, folder: Path, seconds: float = 100) -> subprocess.CompletedProcess[str]:
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
def url(tmp_path: Path) -> Iterator[str]:
    """A cluster of three nodes, for one test."""
    where = ("--dir", str(tmp_path / "cluster"))
    cluster = ("node", "cluster")
    started = call(
        *(*cluster, "start", *where, "--base-port", str(free_base_port()), "--detach", "--json"),
        folder=tmp_path,
    )
    assert started.returncode == 0, started.stderr
    yield json.loads(started.stdout)["url"]
    call(*cluster, "stop", *where, folder=tmp_path)


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(240)
def test_the_job_publishes_and_acks_every_message_and_leaves_no_file(
    url: str, tmp_path: Path
) -> None:
    """Two producers and two consumers on Spark, the report as JSON."""
    done = call(
        *("bench.load", "--url", url, "--queue", "load", "--messages", "3001", "--size", "100"),
        *("--producers", "2", "--consumers", "2", "--idle", "1", "--json"),
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
    assert os.listdir(tmp_path / "tmp") == []


def test_a_cluster_that_is_not_there_is_said_before_spark_starts(tmp_path: Path) -> None:
    """One line, exit code 1."""
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
