"""The bench of tasks, small, on a real cluster."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from bench import tasks

pytestmark = pytest.mark.cluster


def test_a_small_run_compares_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench.tasks", "--pairs", "1", "--messages", "500", "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert tasks.main() == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert pair["alone_us"] > 0
    assert pair["task_us"] > 0


def test_the_table_shows_the_difference_of_each_pair() -> None:
    out = io.StringIO()
    pairs = [tasks.TaskPair(20, 30), tasks.TaskPair(20, 50), tasks.TaskPair(40, 60)]
    tasks.print_table(pairs, Console(file=out, width=200))
    (line,) = (line for line in out.getvalue().splitlines() if "difference" in line)
    assert [cell.strip() for cell in line.split("\N{BOX DRAWINGS LIGHT VERTICAL}")[2:5]] == [
        "20.0",
        "10.0",
        "30.0",
    ]
