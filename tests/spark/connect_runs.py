"""Spark Connect: by `make spark`, for it is a server and a client of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.processes import environment
from fifo.blocking import BlockingClient
from tests.spark.conftest import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(400)]

PROGRAM_S = 300


def test_rows_get_their_verdicts_through_connect(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    client.update(queue, dead_letter=f"{queue}.dead")
    client.publish_many(queue, [b'{"n": %d}' % number for number in range(1, 7)] + [b"no json"])
    program = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_program", cluster.url, queue],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert program.returncode == 0, program.stderr[-3000:]
    found = json.loads(program.stdout.splitlines()[-1])
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["schema"] == "struct<n:bigint>"
    settled = found["settled"]
    assert (settled["terminated"], settled["nacked"], settled["lost"]) == (1, 1, 0)
    assert found["good"] == [2, 3, 4, 5, 6]
    overview = client.queue(queue)
    assert (overview.delayed, overview.ready, overview.locked) == (1, 0, 0)
    [letter] = client.peek(f"{queue}.dead", 9)
    assert letter.dead_letter is not None
    assert (letter.dead_letter.detail or "").startswith("is no JSON")
