"""A worker on a cluster in the process.

Owns how one is started and drained. Must not know what a test looks for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import fifo
import fifo.testing


@pytest.fixture
async def cluster() -> AsyncIterator[fifo.testing.Cluster]:
    async with fifo.testing.cluster() as made:
        yield made


@asynccontextmanager
async def running(
    app: fifo.App, cluster: fifo.testing.Cluster, **options: Any
) -> AsyncIterator[fifo.Worker]:
    """A worker with a client of its own, drained at the end."""
    async with fifo.connect(cluster.url) as client, fifo.Worker(app, client, **options) as worker:
        yield worker
