"""Spark's executors need the client alone: every task runs where `import node` fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.load.partition import CONSUMER, PRODUCER
from bench.processes import environment
from tests.packaging.executors import COUNT
from tests.support.cluster import loopback_config
from tests.support.served import served

STEP_S = 240
WITHOUT_NODE = """\
import sys

# PySpark starts its workers as `python -m pyspark...`; the driver keeps the checkout.
if any(argument.startswith("pyspark") for argument in sys.orig_argv):
    sys.modules["node"] = None
"""


def drive(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the driver, whose workers find `sitecustomize.py` in the folder."""
    return subprocess.run(
        [sys.executable, "-m", "tests.packaging.executors", url, str(folder)],
        env=environment({"PYTHONPATH": str(folder)}),
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(300)
async def test_source_sink_and_load_job_run_on_workers_without_the_server(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_NODE)
    async with served(loopback_config(tmp_path, 1), tmp_path) as node:
        done = await asyncio.to_thread(drive, f"fifo://{node.address}", tmp_path)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome.pop("node").startswith("import of node halted")
    assert outcome == {
        "read": COUNT,
        "streamed": COUNT,
        "load": {PRODUCER: COUNT, CONSUMER: COUNT},
    }
