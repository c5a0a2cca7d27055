"""Processes for handlers that may block: what each end of a call or of a process does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import fifo
import fifo.testing
from fifo.worker.children import Children
from fifo.worker.errors import ChildDied
from fifo.worker.loading import load
from tests.worker.conftest import running

pytestmark = [pytest.mark.process]

JOBS = """
import os, signal, threading
from typing import Annotated
import fifo

app = fifo.App()

def opened():
    yield f"opened in {os.getpid()}"

@app.task("jobs")
def square(number: int, by: Annotated[str, fifo.Depends(opened, scope="worker")]) -> object:
    return number * number, by

@app.task("jobs")
def fail(how: str) -> None:
    if how == "terminal":
        raise fifo.Terminal("never", "not even then") from KeyError("cause")
    if how == "retry":
        raise fifo.Retry(7)
    raise ZeroDivisionError("of the handler")

@app.task("jobs", max_deliveries=2)
def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@app.task("jobs")
def fork_and_die() -> None:
    if os.fork() == 0:
        signal.alarm(10)
        threading.Event().wait()
    os.kill(os.getpid(), signal.SIGKILL)

@app.task("jobs", soft_time_limit=0.2)
def wait_softly() -> None:
    threading.Event().wait()

@app.task("jobs", time_limit=30)
def hang() -> None:
    threading.Event().wait()

@app.task("jobs")
def wait() -> None:
    threading.Event().wait()

@app.task("jobs")
def trace_id() -> str:
    from opentelemetry import propagate, trace
    return format(trace.get_current_span().get_span_context().trace_id, "032x")
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fifo.App:
    """The app, imported here and found by its processes."""
    (tmp_path / "child_jobs.py").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "child_jobs", raising=False)
    return load("child_jobs:app")


@pytest.fixture
async def children(jobs: fifo.App) -> AsyncIterator[Children]:
    pool = Children("child_jobs:app", 1, "info", "text")
    yield pool
    await pool.close()


async def test_each_end_of_a_call_comes_back_and_leaves_the_pool_usable(
    jobs: fifo.App, children: Children
) -> None:
    async def run(name: str, **arguments: Any) -> Any:
        return await children.run(jobs.tasks[name], arguments, wants_result=True)

    square, by = await run("square", number=12)
    assert square == 144
    with pytest.raises(Exception, match="of the handler") as failed:
        await run("fail", how="error")
    assert type(failed.value).__name__ == "ZeroDivisionError"
    assert 'raise ZeroDivisionError("of the handler")' in failed.value.__notes__[0]
    with pytest.raises(fifo.Terminal) as ended:
        await run("fail", how="terminal")
    assert (ended.value.reason, ended.value.description) == ("never", "not even then")
    with pytest.raises(fifo.Retry) as again:
        await run("fail", how="retry")
    assert again.value.delay == 7
    with pytest.raises(Exception, match=r"over its soft time limit of 0\.2 s"):
        await run("wait_softly")
    assert await run("square", number=3) == [9, by]  # the same process, and dependency
    with pytest.raises(ChildDied, match="the process that ran it ended by SIGKILL"):
        await run("die", number=1)
    async with asyncio.timeout(8):
        with pytest.raises(ChildDied, match="ended by SIGKILL"):
            await run("fork_and_die")
    square, other = await run("square", number=4)
    assert (square, other != by) == (16, True)
    hanging = asyncio.create_task(run("wait"))
    await asyncio.sleep(0)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert (await run("square", number=5))[0] == 25


async def test_a_handler_in_a_process_belongs_to_the_trace_of_its_message(
    jobs: fifo.App, children: Children
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import context, propagate

    trace_id = jobs.tasks["trace_id"]
    await children.run(trace_id, {}, wants_result=True)  # from here on it has the library
    found = "0af7651916cd43dd8448eb211c80319c"
    token = context.attach(propagate.extract({"traceparent": f"00-{found}-b7ad6b7169203331-01"}))
    try:
        assert await children.run(trace_id, {}, wants_result=True) == found
    finally:
        context.detach(token)
    assert await children.run(trace_id, {}, wants_result=True) == "0" * 32


async def test_a_killed_child_returns_its_message_counted(
    jobs: fifo.App, children: Children, caplog: pytest.LogCaptureFixture
) -> None:
    async with fifo.testing.cluster() as cluster:
        jobs.url = cluster.url
        async with running(jobs, cluster, children=children) as worker:
            await jobs.tasks["die"].send(1)
            while not cluster.queue("jobs").dead:  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(0.1)
            (dead,) = cluster.queue("jobs").dead
            assert dead.dead_letter is not None
            text = "ChildDied: the process that ran it ended by SIGKILL"
            assert dead.dead_letter.exception == text
            assert f"task die failed, again by the queue's backoff (1 of 2): {text}" in caplog.text
            assert worker.at_work == 0


async def test_a_process_that_has_imported_other_code_gives_the_message_back_uncounted(
    jobs: fifo.App, children: Children, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a deployment under a worker that runs: its processes start when they are needed."""
    (tmp_path / "child_jobs.py").write_text(JOBS.replace("def square(", "def cube("))
    line = "run task 'square' has imported code without it"
    async with fifo.testing.cluster() as cluster:
        jobs.url = cluster.url
        async with running(jobs, cluster, children=children):
            await jobs.tasks["square"].send(3)
            while not caplog.records:  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(0.1)
            assert line in caplog.text
        await cluster.advance(seconds=15)
        (message,) = cluster.queue("jobs").messages
        assert message.failures == 0
    assert "given back for 10 s" in caplog.text


async def test_a_handler_that_blocks_is_ended_at_its_time_limit(
    jobs: fifo.App, children: Children
) -> None:
    async with fifo.testing.cluster():  # for its clock
        with pytest.raises(fifo.TimeLimit, match="over its time limit of 30 s"):
            await children.run(jobs.tasks["hang"], {}, wants_result=False)
    assert await children.run(jobs.tasks["square"], {"number": 1}, wants_result=True)


async def test_a_child_that_cannot_start_says_why(
    jobs: fifo.App, capfd: pytest.CaptureFixture[str]
) -> None:
    pool = Children("nowhere:app", 1, "info", "text")
    with pytest.raises(ChildDied, match="ended with exit code 1"):
        await pool.run(jobs.tasks["wait"], {}, wants_result=False)
    await pool.close()
    assert "fifo worker: there is no module 'nowhere'" in capfd.readouterr().err
