"""docs/frameworks.md: its programs are examples/, and run as a user runs them.

Owns their processes. Must not know what a framework does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fifo
from bench.loopback import free_ports
from tests.docs.passing import environment, printed
from tests.support.cluster import eventually
from tests.support.pages import blocks
from tests.support.pytest_ids import ROOT
from tests.support.shared import SharedCluster

pytestmark = pytest.mark.process

FOLDER = ROOT / "examples"
PROGRAMS = ("dramatiq_orders.py", "taskiq_orders.py", "fastapi_orders.py", "django_orders.py")
SECONDS = 40.0
"""Longest wait for a line or an answer: several times a start on a busy machine."""

END_SECONDS = 20.0


@pytest.mark.process
def test_the_blocks_are_the_examples() -> None:
    assert blocks("frameworks") == [(FOLDER / name).read_text() for name in PROGRAMS]


@contextmanager
def running(url: str, log: Path, *command: str) -> Iterator[None]:
    """A program among the examples, which is ended as operators end it."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=FOLDER,
            env=environment(url),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(END_SECONDS)


WORKERS = {
    "dramatiq_orders.py": ("dramatiq", "dramatiq_orders", "--processes", "1", "--threads", "2"),
    "taskiq_orders.py": ("taskiq", "worker", "taskiq_orders:broker", "--workers", "1"),
}


@pytest.mark.cluster
@pytest.mark.parametrize("program", WORKERS)
async def test_a_worker_runs_what_its_program_sends(
    shared_cluster: SharedCluster, tmp_path: Path, program: str
) -> None:
    log = tmp_path / "worker.log"
    with running(shared_cluster.url, log, *WORKERS[program]):
        await asyncio.to_thread(printed, FOLDER, program, shared_cluster.url)

        def shipped() -> bool:
            text = log.read_text()
            return (
                "order 1 is on its way to Ada" in text and "order 2 is on its way to Grace" in text
            )

        await eventually(shipped, within=SECONDS)


SERVERS = {
    "fastapi": ("uvicorn", "fastapi_orders:app", "--port"),
    "django": ("gunicorn", "django_orders", "--preload", "--workers", "2", "--bind"),
}


@pytest.mark.cluster
@pytest.mark.parametrize("server", SERVERS)
async def test_a_web_server_stores_each_order_once(
    shared_cluster: SharedCluster, tmp_path: Path, server: str
) -> None:
    async with fifo.connect(shared_cluster.url) as client:
        (port,) = free_ports(1)
        at = str(port) if server == "fastapi" else f"127.0.0.1:{port}"
        with running(shared_cluster.url, tmp_path / "server.log", *SERVERS[server], at):
            await eventually(lambda: answers(port), within=SECONDS)
            for number in (1, 2, 2, 3):
                order = b'{"id": %d, "customer": "Ada"}' % number
                assert await asyncio.to_thread(post, port, order) == 202
        assert (await client.queue("web.orders")).ready == 3


def answers(port: int) -> bool:
    """Whether a server listens."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def post(port: int, body: bytes) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/orders", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        status: int = answer.status
        return status
