"""Random changes of the members amid faults: seeds of `tests/support/member_schedule.py`.

`python -m tests.node.raft --members --fresh --seeds 1000` runs more.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.member_schedule import run

pytestmark = pytest.mark.slow

SEEDS = range(9000, 9012)

PAST = (910487, 920424)
"""Seeds that once failed: a member that lost its disk waited for ever, beside a learner, and for a
leader that it did not know by its newest journal."""


def test_random_changes_amid_faults_break_nothing() -> None:
    happened = sum((run(seed) for seed in SEEDS), Counter[str]())
    assert happened["change"] > len(SEEDS)


@pytest.mark.parametrize("seed", PAST)
def test_a_past_failure_amid_changes_no_longer_occurs(seed: int) -> None:
    run(seed)
