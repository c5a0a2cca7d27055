"""Which plans a suite is made of, what it counts, and the report that people read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.jepsen import report, stories
from tests.jepsen.checkers import find
from tests.jepsen.checkers.sometimes import sometimes
from tests.jepsen.run import Plan, Result, known_faults
from tests.jepsen.suite import LASTING, Suite, plans
from tests.jepsen.workloads import WORKLOADS

MIB = 1 << 20


def result_of(scene: stories.Scene, memory: list[tuple[float, str, int]] | None = None) -> Result:
    events = stories.history_of(scene, traced=True)
    plan = Plan("queue", ("kill",), 7, 12.0)
    return Result(plan, Path("runs/queue-7"), events, find(events), memory or [], 1.0)


def suite_of(*results: Result, took: float = 1.0, soak: bool = False) -> Suite:
    suite = Suite(Path("runs"), 7, 60.0, 12.0, soak=soak)
    suite.results = list(results)
    suite.took = took
    for result in results:
        suite.seen += sometimes(result.events)
    return suite


@pytest.mark.process
def test_a_suite_has_every_workload_and_every_fault_and_a_quarter_that_serves() -> None:
    some = list(islice(plans(1, 12.0), 8 * len(WORKLOADS)))
    assert {plan.workload for plan in some} == set(WORKLOADS)
    assert {fault for plan in some for fault in plan.faults} == set(known_faults())
    serving = [plan for plan in some if plan.lasting]
    assert len(serving) == len(some) // 4
    assert {plan.lasting for plan in serving} <= set(LASTING)
    assert sum(plan.nodes == 5 for plan in some) == len(some) // 5
    assert sum(plan.secured for plan in some) == len(some) // 3
    assert some == list(islice(plans(1, 12.0), len(some)))


def test_a_failed_run_names_its_rule_its_folder_and_its_command() -> None:
    text = result_of(stories.lost).text()
    assert text.startswith("FAIL queue")
    assert "S1: p1-0: confirmed, and gone" in text
    assert "history, logs, disks: runs/queue-7" in text
    assert "python -m tests.jepsen --workload queue --faults kill --seed 7 --seconds 12" in text


def test_the_report_shows_verdict_faults_counters_and_timelines() -> None:
    page = report.html(suite_of(result_of(stories.served_by_two), result_of(stories.lost)))
    assert "1 of 2 runs broke a rule" in page
    assert "S1: p1-0" in page
    assert page.count("<svg") == 2
    assert "lock ran out without a leader" in page
    assert "http" not in page, "it has to be readable without a network"


def test_the_tables_of_the_docs_count_faults_by_workload() -> None:
    lines = report.markdown(suite_of(result_of(stories.served_by_two))).splitlines()
    assert lines[0] == "| fault | queue |"
    assert "| kill | 1 |" in lines
    assert "| runs | 1 |" in lines


def test_memory_is_flat_or_the_soak_has_failed() -> None:
    def soak(last: int) -> Suite:
        sizes = [50 * MIB] * 100 + [last * MIB] * 100
        samples = [(10.0 * place, "n1", size) for place, size in enumerate(sizes)]
        return suite_of(result_of(stories.acked, samples), took=2000.0, soak=True)

    assert not soak(52).grown
    assert soak(60).grown
    assert "+20.0%" in soak(60).growth_text()
    assert "Memory" in report.html(soak(60))
