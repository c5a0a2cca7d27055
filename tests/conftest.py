"""Rules that all tests share: what is quick, where the others run, and which are skipped here.

Owns three rules and a cluster. `--quick` leaves only the tests that `tests.support.quick` calls
quick, and every run holds these to their budget. Tests marked `cluster` run one at a time, in one
xdist group, because two clusters at once make each other slow enough to miss deadlines; those that
take `shared_cluster`, which is three nodes in one process and mostly idle, and tests that start a
JVM without a cluster each run in another group. Tests marked `spark` are skipped, with the reason,
where there is no Java for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from bench.java import INSTALL_HINT, find_java
from bench.loopback import SHARE_ENV
from tests.support.quick import Budget, is_quick

if TYPE_CHECKING:
    from tests.support.shared import SharedCluster, SharedClusters

# A JVM of a test lives too briefly for its better compiler and collector to pay.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The configuration file of the account that runs the tests must not change them.
os.environ.pop("FIFO_CONFIG", None)

# Workers side by side start nodes on ports of their own, and so do the programs that they start.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
os.environ[SHARE_ENV] = f"{_WORKER}/{os.environ.get('PYTEST_XDIST_WORKER_COUNT', '1')}"

# `--hypothesis-profile=thorough`: as long as a stateful test that leaves it the choice may take;
# the machine's makes 100 000 steps of it. Never the same twice, also where CI's profile would be.
settings.register_profile(
    "thorough",
    max_examples=1_000,
    stateful_step_count=100,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def _loggers_of_pyspark_go() -> Iterator[None]:
    """An error of a query makes a logger that turns every handler it is given to JSON; pytest gives
    it those of all later tests, because it does not propagate."""
    yield
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.Logger.manager.loggerDict.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests without a slower marker")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budget(whole=not config.getoption("quick")))


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this very hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each item its group and the skip mark where it cannot run; drop those not asked for."""
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = filter(is_quick, items)
    without_java: bool | None = None
    for item in items:
        if "shared_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("shared"))
        elif item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.xdist_group("clusters"))
        elif item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("jvm"))
        if item.get_closest_marker("spark"):
            if without_java is None:
                without_java = find_java() is None
            if without_java:
                item.add_marker(pytest.mark.skip(reason=f"no Java for Spark: {INSTALL_HINT}"))


@pytest.fixture(scope="session")
def shared_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedClusters]:
    from tests.support.shared import SharedClusters  # most runs of a few tests need no node

    clusters = SharedClusters(lambda: tmp_path_factory.mktemp("shared"))
    yield clusters
    clusters.close()


@pytest.fixture
def shared_cluster(shared_clusters: SharedClusters) -> SharedCluster:
    """Three nodes with a leader, and no queue, producer or session in them. The test may crash and
    stop nodes: the next one finds them running again."""
    return shared_clusters.ready()
