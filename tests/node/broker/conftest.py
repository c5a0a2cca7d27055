"""The end of every test of the broker: no client stays open."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support import rawclient


@pytest.fixture(autouse=True)
async def _no_client_left_open() -> AsyncIterator[None]:
    yield
    await rawclient.close_all()
