"""Six kinds of hostile neighbours on three real nodes: every fact holds.

`make neighbours` runs all kinds.
"""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest

from node.credentials import SCRYPT_LOG_N, SCRYPT_P, SCRYPT_R
from tests.neighbours.__main__ import Estimate
from tests.neighbours.judge import Verdict, judge, prepare
from tests.neighbours.kinds import (
    ATTACKS,
    IN_EVERY_RUN,
    KINDS,
    LEAST_SECONDS,
    MIX,
    RELOADED,
    SAYS,
    SILENT,
)
from tests.neighbours.nodes import HONEST, Nodes
from tests.neighbours.page import PAGE, Beginning, Run, render, surveyed
from tests.neighbours.surveys import SURVEYED
from tests.neighbours.visitors import VISITORS
from tests.support.pytest_ids import uncollected

SECONDS = 2.0
"""Of each attack: a burst needs one to take a leadership."""

SEED = 1


def unfolded(page: str) -> str:
    """A page without the breaks of its lines."""
    return " ".join(page.split())


def test_every_kind_has_a_sentence_and_there_are_thirty() -> None:
    assert len(KINDS) >= 30
    assert all(SAYS[kind] for kind in KINDS)
    assert set(IN_EVERY_RUN) <= set(ATTACKS) | {MIX}
    assert set(ATTACKS) >= {RELOADED, *LEAST_SECONDS, *SILENT}


def test_the_page_that_is_kept_has_every_kind() -> None:
    page = PAGE.read_text()
    missing = [kind for kind in KINDS if f"- **{kind}**: {SAYS[kind]}." not in unfolded(page)]
    assert not missing, "run `make neighbours`"


def test_every_attack_of_the_surveys_is_covered_by_a_kind_or_a_test_that_exists() -> None:
    assert not [one.attack for one in SURVEYED if not one.kinds and not one.tests]
    assert not {kind for one in SURVEYED for kind in one.kinds} - set(KINDS)
    assert not uncollected(test for one in SURVEYED for test in one.tests)
    assert PAGE.read_text().endswith(surveyed()), "run `make neighbours`"


def test_the_page_names_costs_times_and_broken_facts() -> None:
    good = Verdict("pings", 2.0, p99_ms=41.2, frames=20_000, connections=1, sent_bytes=3_000_000)
    bad = Verdict(MIX, 2.0, broken=["an election: term 1 became 2"], cpu_seconds=1.25)
    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    worse = Verdict("pings", 2.0, p99_ms=90.0, frames=30_000, connections=1)
    runs = [Run([good, bad], 7, 60.0), Run([worse, bad], 8, 150.0)]
    page = unfolded(render(runs, Beginning("abc1234", 2), when))
    assert "Last whole runs, 2 in a row: 2026-01-02 at abc1234, 2 s of each attack" in page
    assert "beside 2 spinning processes" in page
    assert "- seed 7: 1 of 2 kinds kept every fact, in 1.0 minutes - seed 8: 1 of 2" in page
    assert "| pings | 30,000 | 1 | 0.0 MB | 0.0 s | 41, 90 ms | hold |" in page
    assert f"| {MIX} | 0 | 0 | 0.0 MB | 1.2 s | 0, 0 ms | broken |" in page
    assert f"- **{MIX} (seed 8)**: an election: term 1 became 2" in page


def test_the_time_that_is_left_is_of_the_kinds_that_were_not_run() -> None:
    left = Estimate(["pings", "programs that die"], 2.0, 2)
    assert str(left) == "4 to go, about 3 min"  # 6 s and 79 s, twice
    left.took("programs that die", 600.0)
    assert str(left) == "3 to go, about 10 min"


@pytest.mark.slow
def test_guesses_and_visits_cost_a_whole_hash_each_and_the_start_of_a_cluster_one(
    tmp_path: Path,
) -> None:
    users = {user.name: user.password for user in Nodes(tmp_path).config.users}
    [costly] = {users[name] for name in (HONEST, *VISITORS)}
    assert costly is not None
    assert (costly.log_n, costly.r, costly.p) == (SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_no_neighbour_takes_a_node_down(tmp_path: Path) -> None:
    """A cluster for all kinds: what an attack leaves behind is there for the next."""

    async def run() -> dict[str, list[str]]:
        nodes = Nodes(tmp_path)
        try:
            await nodes.start()
            await prepare(nodes)
            found = {}
            for kind in IN_EVERY_RUN:
                found[kind] = (await judge(nodes, kind, SECONDS, SEED)).broken
            return found
        finally:
            nodes.stop()

    broken = asyncio.run(run())
    assert broken == {kind: [] for kind in IN_EVERY_RUN}
