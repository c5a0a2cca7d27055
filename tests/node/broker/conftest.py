"""The clock of the broker's tests, and their end: no client stays open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.support import rawclient
from tests.support.skipping import SkippingLoop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Real nodes without waiting; those with a real client, which has a thread, wait."""
    if item.get_closest_marker("cluster"):
        return {"real": asyncio.new_event_loop}
    return {"skipping": SkippingLoop}


@pytest.fixture(autouse=True)
async def _no_client_left_open() -> AsyncIterator[None]:
    yield
    await rawclient.close_all()
