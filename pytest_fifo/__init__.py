"""The pytest plugin of fifo: fixtures on `fifo.testing.cluster`, found by entry point.

Owns the fixtures `fifo_cluster`, `fifo_client` and `fifo_worker`, `fifo_blocking_cluster` and
`fifo_blocking_client`, and their two markers. Must not
know nodes, and imports `fifo` only where a test asks for a fixture: pytest loads this module in
every project of an environment that has fifo installed, also in those that never use it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    import fifo
    import fifo.blocking
    import fifo.testing
    from pytest_fifo.faults import Faults

    _async_fixture = pytest.fixture
else:
    try:  # Its own entry point has loaded it by now, or will.
        from pytest_asyncio import fixture as _async_fixture
    except ModuleNotFoundError:  # anyio takes pytest's own fixtures
        _async_fixture = pytest.fixture

__all__ = [
    "fifo_blocking_client",
    "fifo_blocking_cluster",
    "fifo_client",
    "fifo_cluster",
    "fifo_worker",
]


class StartWorker(Protocol):
    """Starts a worker of an app; `options` are those of `fifo.Worker`."""

    def __call__(self, app: fifo.App, **options: Any) -> Awaitable[fifo.Worker]: ...


MARKERS = (
    "fifo_cluster(nodes=1, seed=0): the nodes of the cluster, and what decides its elections",
    "fifo_faults(*faults, every=5, lasting=2, seed=0): faults on the cluster while the test runs"
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


def _chosen(request: pytest.FixtureRequest) -> Any:
    """The keywords of the cluster of a test."""
    default = {"nodes": 1 if _marker(request, "fifo_faults") is None else 3, "seed": 0}
    return _keywords(_marker(request, "fifo_cluster"), default, positional=False)


def _faults(request: pytest.FixtureRequest, cluster: fifo.testing.Cluster) -> Faults | None:
    """The faults that happen while a test runs."""
    mark = _marker(request, "fifo_faults")
    if mark is None:
        return None
    from pytest_fifo.faults import Faults

    timing = _keywords(mark, {"every": 5.0, "lasting": 2.0, "seed": 0}, positional=True)
    return Faults(cluster, mark.args, **timing)


@_async_fixture
async def fifo_cluster(request: pytest.FixtureRequest) -> AsyncIterator[fifo.testing.Cluster]:
    """A cluster in the process of the test, in virtual time."""
    import fifo.testing

    async with fifo.testing.cluster(**_chosen(request)) as cluster, AsyncExitStack() as stack:
        faults = _faults(request, cluster)
        if faults is not None:
            await stack.enter_async_context(faults)
        yield cluster


@pytest.fixture
def fifo_blocking_cluster(
    request: pytest.FixtureRequest,
) -> Iterator[fifo.testing.BlockingCluster]:
    """`fifo_cluster` for a test without an event loop."""
    import fifo.testing

    with fifo.testing.cluster(**_chosen(request)) as cluster, ExitStack() as stack:
        faults: list[Faults] = []

        async def begin(there: fifo.testing.Cluster) -> None:
            found = _faults(request, there)
            if found is not None:
                faults.append(await found.__aenter__())

        async def end(_: fifo.testing.Cluster) -> None:
            for one in faults:
                await one.__aexit__(None, None, None)

        stack.callback(cluster.run, end)
        cluster.run(begin)
        yield cluster


@pytest.fixture
def fifo_blocking_client(
    fifo_blocking_cluster: fifo.testing.BlockingCluster,
) -> Iterator[fifo.blocking.BlockingClient]:
    """A blocking client of `fifo_blocking_cluster`."""
    import fifo.blocking

    with fifo.blocking.connect(fifo_blocking_cluster.url) as client:
        yield client


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
