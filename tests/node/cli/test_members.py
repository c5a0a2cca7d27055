"""Members change while the cluster runs, on real processes and by the commands of operating.md.

A sample that is quick; `make members` has all of it at length (`tests/members`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.members import stories
from tests.support.machines import Machines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    made = Machines(tmp_path / "machines")
    yield made
    await made.close()


async def test_a_node_grows_into_three_under_load(machines: Machines) -> None:
    await stories.grow_one_to_three(machines)


async def test_a_stranger_replaces_a_dead_machine_with_two_commands(machines: Machines) -> None:
    await stories.replace_a_dead_one(machines)
