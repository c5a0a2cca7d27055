"""The Raft benchmark measures what it says: its loop in virtual time, its groups in a real run."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING

import pytest

from bench.raft import __main__ as raft
from bench.raft.load import WARM_UP_S, Load, LoadSpec, payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class World:
    """Commands that take `delay` seconds each, in virtual time."""

    def __init__(self, delay: float) -> None:
        self.now = 0.0
        self.delay = delay
        self.waiting: deque[tuple[float, Callable[[bool], None]]] = deque()

    def submit(self, commands: Iterable[bytes], done: Callable[[bool], None]) -> None:
        self.waiting.extend((self.now + self.delay, done) for _ in commands)

    def step(self, *, committed: bool = True) -> None:
        self.now, done = self.waiting.popleft()
        done(committed)


def test_a_load_counts_commits_after_the_warm_up() -> None:
    world = World(delay=0.01)
    load = Load(LoadSpec(size=1000, window=5, seconds=10), world.submit, lambda: world.now)
    while not load.over:
        load.pump()
        assert len(world.waiting) <= 5
        world.step()
    figures = load.figures()
    assert world.now >= WARM_UP_S + 10
    assert figures["per_second"] == pytest.approx(500, rel=0.02)
    assert figures["mb_per_second"] == pytest.approx(0.5, rel=0.02)
    assert figures["ms"]["p50"] == pytest.approx(10)
    assert figures["failed"] == 0


def test_a_load_counts_failed_commands_separately() -> None:
    world = World(delay=0.01)
    load = Load(LoadSpec(size=1, window=1, seconds=1), world.submit, lambda: world.now)
    while not load.over:
        load.pump()
        world.step(committed=False)
    assert load.figures()["failed"] == pytest.approx(100, abs=2)
    assert load.figures()["per_second"] == 0


@pytest.mark.parametrize("size", [1, 63, 64, 1024, 65536])
def test_a_payload_has_its_size_and_others_differ(size: int) -> None:
    assert len(payload(1, size)) == size
    assert size == 1 or payload(1, size) != payload(2, size)


@pytest.mark.cluster
def test_a_group_commits_and_outlives_its_leader() -> None:
    # In a process of its own: a household ends everything below the process that keeps it.
    command = [sys.executable, "-m", "bench.raft", "--json", "--kind", "ours", "--runs", "0"]
    done = subprocess.run(
        [*command, "--kills", "1"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["figures"]
    assert row["workload"] == raft.KILLED.name
    assert row["median"] > 0
    assert row["ratio"] is None


def test_the_table_names_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"workload": "w", "kind": kind, "unit": "u", "median": 2.0, "lowest": 1.0, "highest": 3.0,
         "ratio": 2.0, "aim": "a"}
        for kind in raft.KINDS
    ]  # fmt: skip
    raft.print_table(rows, argparse.Namespace(runs=1, seconds=1.0, kills=0))
    printed = capsys.readouterr().out
    assert all(kind in printed for kind in raft.KINDS)
    assert "2.00" in printed
