"""A forked child has no part in its parent's connection, and makes one of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

import fifo
from fifo.wire.messages import Ok, QueueQuery
from tests.support.wire_peer import Peer

pytestmark = pytest.mark.process


_PROGRAM = textwrap.dedent(
    """
    import asyncio, os, sys, warnings
    import fifo
    # Python 3.12 and newer say that forking with threads is dangerous, which is why this is tested.
    warnings.simplefilter("ignore", DeprecationWarning)
    url = sys.argv[1]
    client = fifo.blocking.connect(url)
    assert client.queues() == []
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.queues()
        except fifo.ClientClosed as error:
            # A client of its own, with a session of its own.
            with fifo.blocking.connect(url) as own:
                if "fork" in str(error) and own.queues() == []:
                    code = 0
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    # The parent's connection has not noticed.
    assert client.queues() == []
    assert client.metrics.disconnects == 0
    client.close()
    print("done")
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_forked_child_has_to_connect_again_and_the_parent_is_undisturbed() -> None:
    async with Peer() as peer:
        peer.answers[QueueQuery] = lambda line, frame: line.send(Ok([]), frame.correlation)
        sessions: set[bytes] = set()
        before = peer.opening
        peer.opening = lambda line, hello: sessions.add(hello.session) or before(line, hello)  # type: ignore[func-returns-value]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROGRAM,
            peer.url,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, output.decode()
        assert output.endswith(b"done\n")
        assert len(sessions) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_an_asyncio_client_in_a_forked_child_raises_a_clear_error() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        reading, writing = os.pipe()
        child = _fork()
        if child == 0:  # pragma: no cover - runs in the child
            signal.alarm(10)
            words = b"no error"
            try:
                client._session.check()
            except fifo.ClientClosed as error:
                words = str(error).encode()
            os.write(writing, words)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = await asyncio.to_thread(pipe.read)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert b"connect again" in said
        peer.answers[QueueQuery] = lambda line, frame: line.send(Ok([]), frame.correlation)
        assert await client.queues() == []


def _fork() -> int:
    import warnings

    with warnings.catch_warnings():
        # Python 3.12 and newer warn of forking with threads; pytest has some.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
