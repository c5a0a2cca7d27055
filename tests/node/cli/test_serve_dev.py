"""`fifo serve --dev`: a queue of a laptop that leaves nothing, and how fast it is there."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fifo.testing
from node.cli.errors import USAGE
from tests.node.cli.local import Done, Local, free_base_port

SLOWER = 20
"""`fifo.testing.cluster` starts in at most this part of the time of `fifo serve --dev`."""

STARTS = 5


@contextmanager
def dev_node(here: Local) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve with --dev, temporary folders inside the folder of the test; yields the URL printed."""
    with subprocess.Popen(
        here.command("serve", "--dev", "--base-port", str(here.base_port)),
        cwd=here.folder,
        env={**here.environment, "TMPDIR": str(here.folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.process
@pytest.mark.cluster
def test_a_node_for_development_prints_its_url_and_leaves_nothing(tmp_path: Path) -> None:
    here = Local(tmp_path, free_base_port())
    with dev_node(here) as (process, url):
        assert url == f"fifo://127.0.0.1:{here.base_port + 1}", process.communicate()
        assert [folder.name.startswith("fifo-dev-") for folder in tmp_path.iterdir()] == [True]
        here.ok("queue", "declare", "orders", "--url", url)
        process.send_signal(signal.SIGINT)
        rest, log = process.communicate(timeout=30)
        assert (process.returncode, rest) == (0, "")
        assert "Traceback" not in log
        assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.cluster
def test_a_cluster_in_the_process_starts_in_a_twentieth_of_the_time(tmp_path: Path) -> None:
    async def start() -> float:
        began = time.perf_counter()
        async with fifo.testing.cluster():
            return time.perf_counter() - began

    here = Local(tmp_path, free_base_port())
    before = [asyncio.run(start()) for _ in range(STARTS)]
    began = time.perf_counter()
    with dev_node(here) as (process, url):
        took = time.perf_counter() - began
        assert url, process.communicate()
    after = [asyncio.run(start()) for _ in range(STARTS)]
    assert min(before + after) * SLOWER <= took


@pytest.mark.parametrize(
    "option", [["--config", "x"], ["--node", "n1"], ["--recover"], ["--data-dir", "x"]]
)
def test_a_node_for_development_takes_no_file(cli: Callable[..., Done], option: list[str]) -> None:
    done = cli("serve", "--dev", *option)
    assert done.code == USAGE
    assert done.line.startswith("fifo: --dev keeps nothing and reads no file: leave out --config")
