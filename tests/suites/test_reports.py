"""The reports of the suites: how a run is read, judged and written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites import page
from tests.suites.plans import KOMBU, PLANS
from tests.suites.running import Outcome, read
from tests.support.pages import page as page_of

PLACE = 'classname="t.integration.test_fifo'
SWITCHES = "test_failover_switches_to_alternate_url"
REPORT = f"""<testsuites><testsuite>
<testcase {PLACE}.test_basic" name="test_connect"/>
<testcase {PLACE}.test_failover" name="{SWITCHES}"><failure message="1 == 2&#10;more"/></testcase>
<testcase {PLACE}" name="test_odd"><error message="KeyError: 'x'"/></testcase>
<testcase {PLACE}" name="test_idle"><skipped message="no broker"/></testcase>
</testsuite></testsuites>"""


def outcome(folder: Path) -> Outcome:
    found = Outcome(KOMBU, "1.2.3")
    (folder / "report.xml").write_text(REPORT)
    read(found, folder / "report.xml")
    return found


def test_a_failure_that_nothing_explains_is_a_fault(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    assert dict(found.counts) == {"passed": 1, "failed": 2, "skipped": 1}
    assert list(found.explained) == [f"test_fifo::test_failover::{SWITCHES}"]
    assert found.faults == ["test_fifo::test_odd"]


def test_the_page_has_the_counts_and_every_reason(tmp_path: Path) -> None:
    text = "before\n<!-- begin kombu -->\nold\n<!-- end kombu -->\nafter\n"
    lines = page.placed(text, outcome(tmp_path), "abc1234", "2026-11-23").splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines
    assert lines[2].startswith("kombu 1.2.3, on 2026-11-23 at abc1234: 1 tests passed, 1 were")
    assert "| test_fifo::test_odd | **failed** | KeyError: 'x' |" in lines
    assert "| 1 | skipped | no broker |" in lines


def test_a_page_without_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no marks"):
        page.placed("text", outcome(tmp_path), "abc1234", "2026-11-23")


@pytest.mark.parametrize("package", PLANS)
def test_every_suite_has_its_place_on_a_page(package: str) -> None:
    assert f"<!-- begin {package} -->" in page_of(PLANS[package].page)
