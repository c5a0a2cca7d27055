"""A client of the shared cluster, for all tests of this folder, and their clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

import pytest

import fifo
import fifo.testing
from tests.support.skipping import IdleClockLoop

if TYPE_CHECKING:
    from tests.support.shared import SharedCluster


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Deadlines of publishes that answers must not meet by chance; all else waits."""
    if item.path.name == "test_publishing.py":
        return {"idle": IdleClockLoop}
    return {"real": asyncio.new_event_loop}


@pytest.fixture
async def client(request: pytest.FixtureRequest) -> AsyncIterator[fifo.Client]:
    """A client of three real nodes, closed in the end; of nodes in the process, in virtual time,
    where the test is marked with `fifo_cluster`."""
    marker = request.node.get_closest_marker("fifo_cluster")
    if marker is not None:
        async with fifo.testing.cluster(**marker.kwargs) as made, fifo.connect(made.url) as found:
            yield found
        return
    shared_cluster: SharedCluster = request.getfixturevalue("shared_cluster")
    async with fifo.connect(shared_cluster.url) as found:
        yield found
