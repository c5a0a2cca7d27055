"""docs/worker.md: its first program is examples/, and runs; its other blocks are apps and tests.

Owns how they are run. Must not know what a block checks.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fifo.worker import command
from tests.docs.passing import passing, printed
from tests.support.pages import blocks, page, rows
from tests.support.pytest_ids import ROOT
from tests.support.shared import SharedCluster
from tests.worker.test_command import Command, started

__all__ = ["started"]

BLOCKS = blocks("worker")

CHECKED = """

def test_the_app_can_run():
    for found in list(globals().values()):
        if isinstance(found, fifo.App):
            found.check()
"""


def test_the_first_blocks_are_the_examples() -> None:
    assert BLOCKS[0] == (ROOT / "examples/orders.py").read_text()
    assert BLOCKS[1] == (ROOT / "examples/send_order.py").read_text()


@pytest.mark.process
def test_the_first_worker_runs_as_it_stands(
    shared_cluster: SharedCluster, started: list[Command]
) -> None:
    folder = ROOT / "examples"
    started.append(worker := Command(folder, "orders:app", "-c", "16", url=shared_cluster.url))
    worker.until("ready: 1 task, queues orders, 16 at once")
    sent = printed(folder, "send_order.py", shared_cluster.url)
    assert sent == "order 2 is on its way to Grace\n"


@pytest.mark.process
def test_the_other_blocks_are_apps_and_tests_that_pass(tmp_path: Path) -> None:
    for number, block in enumerate(BLOCKS[2:]):
        (tmp_path / f"test_block_{number}.py").write_text(block + CHECKED)
    output = passing(tmp_path)
    assert f"{len(BLOCKS) - 2 + 1} passed" in output


def test_the_page_lists_the_options_of_the_command() -> None:
    said = {
        option for row in rows(page("worker"), "How it runs and drains") for option in _options(row)
    }
    assert said == {name for name in command.options() if name not in ("-h", "--help", "--url")}


def _options(row: str) -> list[str]:
    return re.findall(r"`(--?[a-z-]+)`", row.split("|")[1])
