"""A client of the shared cluster, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

import fifo

if TYPE_CHECKING:
    from tests.support.shared import SharedCluster


@pytest.fixture
async def client(shared_cluster: SharedCluster) -> AsyncIterator[fifo.Client]:
    """A client of three real nodes, closed in the end."""
    async with fifo.connect(shared_cluster.url) as found:
        yield found
