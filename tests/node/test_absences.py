"""When a member may be away: one at a time, no leader, and a leader hands over for it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from node.absences import HAND_OVER_REST_SECONDS, SLOT_MS, Absences
from node.collector import Collector
from tests.support.cluster import eventually, running

NAMES = ("n2", "n1", "n3")


class Overdue(Collector):
    """The collector of a process with much to look at, whatever it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.overdue = True
        self.looks: list[bool] = []

    def look(self, *, at_all: bool = True) -> None:
        self.looks.append(at_all)


def away(absences: Absences, *, leads: bool) -> set[int]:
    """The seconds of a minute of cluster time in which the member may go."""
    return {second for second in range(60) if absences.may_go(second * SLOT_MS + 999, leads=leads)}


def test_members_are_away_one_at_a_time_with_a_pause_between() -> None:
    seconds = [away(Absences(NAMES, name), leads=False) for name in NAMES]
    assert all(len(found) == 10 for found in seconds)
    gone = sorted(second for found in seconds for second in found)
    assert all(after - before == 2 for before, after in pairwise(gone))


def test_a_leader_stays_unless_it_is_alone() -> None:
    assert not away(Absences(NAMES, "n1"), leads=True)
    assert len(away(Absences(("n1",), "n1"), leads=True)) == 60


def test_a_leader_hands_over_seldom() -> None:
    absences = Absences(NAMES, "n1")
    assert absences.may_hand_over(5.0)
    assert not absences.may_hand_over(5.0 + HAND_OVER_REST_SECONDS - 1)
    assert absences.may_hand_over(5.0 + HAND_OVER_REST_SECONDS)


@pytest.mark.slow
async def test_a_leader_hands_over_for_a_look_at_all_garbage_and_then_takes_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        collector = leader.collector = Overdue()
        await eventually(lambda: not leader.leads)
        assert collector.looks
        assert not any(collector.looks), "it looked while it led"
        await eventually(lambda: any(collector.looks))
        assert not leader.leads
