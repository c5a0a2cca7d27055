"""A seed is one run, under any hash seed and in any process; other seeds are other runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.run import run

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]
SEED = 1003


def trace(seed: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--seed", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [word for word in done.stdout.split() if word.startswith("trace=")]
    assert found, done.stdout
    return found[0]


def test_a_seed_gives_the_same_trace_under_any_hash_seed() -> None:
    traces = {trace(SEED, hash_seed) for hash_seed in ("0", "1", "random")}
    assert len(traces) == 1


def test_a_seed_gives_the_same_trace_after_another_run() -> None:
    run(SEED + 1)
    assert run(SEED).trace == run(SEED).trace


def test_other_seeds_are_other_runs() -> None:
    assert run(SEED).trace != run(SEED + 1).trace
