"""Rules that all tests share: where they run, and which are skipped here.

Owns two rules. Tests marked `cluster` or `spark` run one at a time, in one xdist group, because two
clusters or two JVMs at once make each other slow enough to miss deadlines. Tests marked `spark` are
skipped, with the reason, where there is no Java for it.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from bench.java import INSTALL_HINT, find_java

ALONE = ("cluster", "spark")

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


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this very hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each item its group, and the skip mark where it cannot run."""
    without_java: bool | None = None
    for item in items:
        if any(item.get_closest_marker(name) for name in ALONE):
            item.add_marker(pytest.mark.xdist_group("alone"))
        if item.get_closest_marker("spark"):
            if without_java is None:
                without_java = find_java() is None
            if without_java:
                item.add_marker(pytest.mark.skip(reason=f"no Java for Spark: {INSTALL_HINT}"))
