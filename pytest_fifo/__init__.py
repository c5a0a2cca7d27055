"""The pytest plugin of fifo: fixtures on `fifo.testing.cluster`, found by entry point.

Owns the fixtures `fifo_cluster`, `fifo_client` and `fifo_worker`, and their two markers. Must not
know nodes, and imports `fifo` only where a test asks for a fixture: pytest loads this module in
every project of an environment that has fifo installed, also in those that never use it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    import fifo
    import fifo.testing

    _async_fixture = pytest.fixture
else:
    try:  # Its own entry point has loaded it by now, or will.
        from pytest_asyncio import fixture as _async_fixture
    except ModuleNotFoundError:  # anyio takes pytest's own fixtures
        _async_fixture = pytest.fixture

__all__ = ["fifo_client", "fifo_cluster", "fifo_worker"]


class StartWorker(Protocol):
    """Starts a worker of an app; `options` are those of `fifo.Worker`."""

    def __call__(self, app: fifo.App, **options: Any) -> Awaitable[fifo.Worker]: ...


MARKERS = (
    "fifo_cluster(nodes=1, seed=0): the nodes of fifo_cluster, and what decides its elections",
    "fifo_faults(*faults, every=5, lasting=2, seed=0): faults on fifo_cluster while the test runs"
    " (kill_leader, cut_leader, cut_clients); it has three nodes by default",
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)


def _marker(request: pytest.FixtureRequest, name: str) -> pytest.Mark | None:
    found: pytest.Mark | None = request.node.get_closest_marker(name)
    return found


def _keywords(mark: pytest.Mark | None, known: dict[str, Any], *, positional: bool) -> Any:
    """The keywords of a marker over their defaults. Raises UsageError for what it does not take."""
    given = {} if mark is None else dict(mark.kwargs)
    wrong = sorted(given.keys() - known.keys())
    if mark is not None and (wrong or (mark.args and not positional)):
        what = ", ".join(wrong or map(repr, mark.args))
        raise pytest.UsageError(
            f"pytest.mark.{mark.name} does not take {what}; its keywords are {', '.join(known)}"
        )
    return known | given


@_async_fixture
async def fifo_cluster(request: pytest.FixtureRequest) -> AsyncIterator[fifo.testing.Cluster]:
    """A cluster in the process of the test, in virtual time."""
    import fifo.testing

    faults = _marker(request, "fifo_faults")
    default = {"nodes": 1 if faults is None else 3, "seed": 0}
    chosen = _keywords(_marker(request, "fifo_cluster"), default, positional=False)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(fifo.testing.cluster(**chosen))
        if faults is not None:
            from pytest_fifo.faults import Faults

            timing = _keywords(faults, {"every": 5.0, "lasting": 2.0, "seed": 0}, positional=True)
            await stack.enter_async_context(Faults(cluster, faults.args, **timing))
        yield cluster


@_async_fixture
async def fifo_client(fifo_cluster: fifo.testing.Cluster) -> AsyncIterator[fifo.Client]:
    """A client of `fifo_cluster`."""
    import fifo

    async with fifo.connect(fifo_cluster.url) as client:
        yield client


@_async_fixture
async def fifo_worker(fifo_cluster: fifo.testing.Cluster) -> AsyncIterator[StartWorker]:
    """Starts workers on `fifo_cluster`: `worker = await fifo_worker(app, concurrency=4)`.

    They drain when the test is over. Handlers with `def` run in threads.
    """
    import fifo

    async with AsyncExitStack() as stack:

        async def start(app: fifo.App, **options: Any) -> fifo.Worker:
            client = await stack.enter_async_context(fifo.connect(fifo_cluster.url))
            return await stack.enter_async_context(fifo.Worker(app, client, **options))

        yield start
