"""dramatiq where nodes want users: what a user may not do is said as it is, and not tried again."""

from __future__ import annotations

import asyncio
import logging
import queue
from logging.handlers import QueueHandler
from pathlib import Path

import dramatiq
import pytest

import fifo
from fifo.dramatiq import FifoBroker
from tests.support.cluster import running
from tests.support.users import EVERYTHING, user

pytestmark = [pytest.mark.cluster]

SECONDS = 20.0
ANN = user("ann", **EVERYTHING)
BOB = user("bob", declare=("*",))
REFUSED = "bob has no permission"


async def test_a_missing_permission_and_a_wrong_password_are_no_lost_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        leader = await cluster.leader()
        await asyncio.to_thread(_refused, str(leader.me.client))


def _refused(host: str) -> None:
    bob = FifoBroker(f"fifo://bob:bob-password@{host}")
    stranger = FifoBroker(f"fifo://ann:wrong@{host}")
    with pytest.raises(fifo.PermissionDenied, match=REFUSED):
        bob.enqueue(dramatiq.Message("default", "note", (), {}, {}))
    with pytest.raises(fifo.AuthenticationFailed, match="wrong user or secret"):
        stranger.enqueue(dramatiq.Message("default", "note", (), {}, {}))
    error = _error_of_a_worker(bob)
    assert isinstance(error, fifo.PermissionDenied)
    assert REFUSED in str(error)
    bob.close()


def _error_of_a_worker(broker: FifoBroker) -> object:
    """The first error that a consumer of a worker logs."""
    lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    noting = QueueHandler(lines)
    noting.prepare = lambda record: record  # type: ignore[method-assign]  # keep the exception
    noting.setLevel(logging.CRITICAL)
    logger = logging.getLogger("dramatiq.worker")
    logger.addHandler(noting)
    broker.declare_queue("default")
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    try:
        record = lines.get(timeout=SECONDS)
    finally:
        logger.removeHandler(noting)
        worker.stop()
    return record.exc_info[1] if record.exc_info else record.getMessage()
