"""A worker process as its probes see it: in this process, on a cluster in virtual time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

import fifo
import fifo.testing
from fifo.worker import command
from fifo.worker.serving import Settings, serve

pytestmark = pytest.mark.slow


async def test_ready_is_a_worker_that_is_connected_and_not_draining(
    cluster: fifo.testing.Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fifo.worker")
    app = fifo.App(cluster.url)
    began = asyncio.Event()
    probe = tmp_path / "health"

    @app.task("orders")
    async def ship() -> None:
        began.set()
        await asyncio.sleep(10)

    serving = asyncio.create_task(serve(app, Settings("nowhere:app", health_file=probe)))
    await cluster.advance(seconds=2)
    assert probe.read_text() == "ready\n"
    killed = cluster.kill_leader()
    await cluster.advance(seconds=2)
    assert probe.read_text() == "live\n"
    cluster.start(killed)
    await cluster.advance(seconds=5)
    assert probe.read_text() == "ready\n"
    await ship.send()
    await began.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await cluster.advance(seconds=2)
    assert probe.read_text() == "live\n"
    assert not serving.done()
    await serving
    assert not probe.exists()
    assert cluster.queue("orders").view.messages == 0
    assert [record.getMessage() for record in caplog.records][-2:] == [
        "draining: 1 message at work, up to 25 s",
        "drained",
    ]


async def test_a_probe_that_cannot_be_is_named(cluster: fifo.testing.Cluster) -> None:
    app = fifo.App(cluster.url)
    settings = Settings("nowhere:app", health_file=Path("/nowhere/health"))
    with pytest.raises(fifo.FifoError, match="health file /nowhere/health: No such file"):
        await serve(app, settings)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "the following arguments are required: MODULE:APP"),
        (("a:b", "-c", "0"), "-c/--concurrency: '0' is not from 1 to 65535"),
        (("a:b", "--processes", "many"), "--processes: 'many' is not from 1 to 256"),
        (("a:b", "--health-port", "99999"), "--health-port: '99999' is not from 1 to 65535"),
        (("a:b", "--grace", "-1"), "--grace: '-1' is no number of seconds"),
        (("a:b", "--grace", "nan"), "--grace: 'nan' is no number of seconds"),
        (("a:b", "--conc", "3"), "unrecognized arguments: --conc 3"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(arguments, asyncio.new_event_loop)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fifo worker: ")
    assert text in line


async def test_a_signal_ends_a_worker_that_still_connects(tmp_path: Path) -> None:
    app = fifo.App("fifo://127.0.0.1:1", connect_timeout=3600)

    @app.task("orders")
    async def ship() -> None: ...

    serving = asyncio.create_task(serve(app, Settings("nowhere:app")))
    await asyncio.sleep(0)  # it listens now
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        await serving
