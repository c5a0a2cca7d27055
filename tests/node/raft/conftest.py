"""The clock of the tests of Raft with real sockets: they wait for nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.skipping import SkippingLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], SkippingLoop]]:
    """Give every async test a loop that skips the time in which nothing happens."""
    return {"skipping": SkippingLoop}
