"""Each hazard b01 to b28 shows on PySyncObj as it ships, so ours are tested against the real thing.

`make mutants` runs it: only another version of the library could change the answer, and the version
is pinned. In a process of its own: `node.raft` replaces what the library's module finds under its
names. A hazard that no longer shows means that the library has changed, and that an override may
have to go.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HAZARDS = [f"b{number:02}" for number in range(1, 29)]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def seen() -> dict[str, str | None]:
    """Outcome of each hazard, by id: None where its harm was seen."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.node.raft.stock_hazards"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return {name[:3]: error for name, error in json.loads(done.stdout).items()}


@pytest.mark.parametrize("hazard", HAZARDS)
def test_the_library_as_it_ships_does_the_harm(seen: dict[str, str | None], hazard: str) -> None:
    assert seen[hazard] is None


def test_there_is_no_other_hazard(seen: dict[str, str | None]) -> None:
    assert sorted(seen) == HAZARDS
