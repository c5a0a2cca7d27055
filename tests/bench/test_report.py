"""The report says what the records say, and stands alone."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from bench.demo import picture
from bench.demo.check import check
from bench.demo.figures import Event, measure
from bench.demo.records import Delivery
from bench.demo.report import Report, print_report, render_html
from bench.statistics import longest_gap, percentiles, spread
from tests.bench.histories import COUNT, START_MS, good_chunks, good_dead, good_deliveries

pytestmark = pytest.mark.slow


EVENTS = (
    Event(START_MS + 10_000, picture.KILLED, "leader n2 killed (SIGKILL)"),
    Event(START_MS + 10_800, picture.ELECTED, "n3 leads"),
    Event(START_MS + 14_000, picture.BACK, "n2 <started> again"),
)


def report_on(deliveries: list[Delivery]) -> Report:
    """A report of a run with these deliveries."""
    return Report(
        verdict=check(COUNT, COUNT, good_chunks(), deliveries, good_dead()),
        figures=measure(good_chunks(), deliveries, (EVENTS[0].at_ms, EVENTS[1].at_ms)),
        events=EVENTS,
        leaderless_s=0.8,
        caught_up_s=None,
        upgrade_s=None,
        grow_s=None,
        total_s=61.0,
        settings=(("machine", "2 cores & more"),),
    )


@pytest.fixture(scope="module")
def good_page() -> str:
    """The page of a good run."""
    return render_html(report_on(good_deliveries()))


def test_the_page_shows_every_count_beside_the_expected_one(good_page: str) -> None:
    """Also those for which any value is fine."""
    for name, actual, wanted in (
        ("published", "20,100", "20,100"),
        ("acked", "20,098", "20,098"),
        ("nacked", "199", "199"),
        ("redelivered", "199", ""),
        ("dead-lettered", "2", "2"),
        ("lost", "0", "0"),
        ("duplicates", "0", ""),
    ):
        row = f'<th>{name}</th><td class="number">{actual}</td><td class="number">{wanted}</td>'
        assert row in good_page
    assert "Nothing was lost" in good_page
    assert 'class="bad"' not in good_page


def test_the_page_needs_nothing_from_elsewhere(good_page: str) -> None:
    """A file that can be mailed: no script, no address to load from."""
    assert good_page.count("<svg") == 1
    assert "<script" not in good_page
    assert not re.search(r"""(?:src|href)=["'](?!#)""", good_page.replace("xlink:", ""))


def test_the_picture_marks_the_kill_and_names_both_lines(good_page: str) -> None:
    """As text that can be searched."""
    for text in ("leader n2 killed (SIGKILL)", "n3 leads", "confirmed to publishers"):
        assert text in good_page


def test_the_page_is_well_formed_and_escapes_its_values(good_page: str) -> None:
    """Every opened element is closed, and a name with a bracket opens none."""
    opened: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Balance().feed(good_page)
    assert not opened
    assert "n2 &lt;started&gt; again" in good_page
    assert "2 cores &amp; more" in good_page


def test_a_loss_is_the_headline_and_names_the_row() -> None:
    """Readers must not have to look for it."""
    page = render_html(report_on([d for d in good_deliveries() if d.row != 4711]))
    assert "1 messages were LOST." in page
    assert "lost: row 4711" in page
    assert '<tr class="bad"><th>lost</th>' in page


def test_the_terminal_shows_the_same_counts() -> None:
    """Without colours too."""
    text = io.StringIO()
    print_report(report_on(good_deliveries()), Console(file=text, width=120))
    shown = text.getvalue()
    assert re.search(r"acked\s+│\s+20,098\s+│\s+20,098", shown)
    assert "at  10.00 s  leader n2 killed (SIGKILL)" in shown
    assert "Nothing was lost: 20,100 messages" in shown
    assert "not seen" in shown


def test_a_run_with_an_upgrade_says_how_long_that_took_and_nothing_of_a_kill() -> None:
    """No leader was killed in such a run."""
    text = io.StringIO()
    report = replace(report_on(good_deliveries()), leaderless_s=None, upgrade_s=8.25)
    print_report(report, Console(file=text, width=120))
    shown = text.getvalue()
    assert re.search(r"upgrade of all nodes, finish included\s+│\s+8\.25 s", shown)
    assert "without a leader" not in shown
    assert "killed node" not in shown


def test_a_run_without_any_record_still_gives_a_report() -> None:
    """Such a run needs its report most."""
    report = Report(
        verdict=check(COUNT, 0, [], [], []),
        figures=measure([], []),
        events=(),
        leaderless_s=None,
        caught_up_s=None,
        upgrade_s=None,
        grow_s=None,
        total_s=1.0,
        settings=(),
    )
    assert "20,100 messages were LOST." in render_html(report)


def test_figures_are_those_of_the_records() -> None:
    """Rates over the span from the first row sent, latencies from the records' own times."""
    figures = report_on(good_deliveries()).figures
    last_confirm_s = (good_chunks()[-1].confirmed_ms - figures.start_ms) / 1000
    assert figures.confirmed_per_second == pytest.approx(COUNT / last_confirm_s)
    assert figures.confirm_ms == (5, 5, 5, 5)
    assert figures.delivery_ms == (7, 7, 7, 7)
    assert figures.confirm_pause_s == pytest.approx(0.5)
    confirmed = figures.series[0]
    assert sum(confirmed.rates) * 0.25 == COUNT


def test_percentiles_are_values_that_were_measured() -> None:
    """Nearest rank: no value between two others is made up."""
    assert percentiles([*range(1, 101)]) == (50, 95, 99, 100)
    assert percentiles([3]) == (3, 3, 3, 3)
    assert percentiles([]) == (0, 0, 0, 0)


def test_the_spread_of_repeated_runs_is_median_lowest_highest() -> None:
    """Of an odd and of an even number of runs."""
    assert spread([3, 1, 2]) == (2, 1, 3)
    assert spread([4, 2]) == (3, 2, 4)


def test_the_longest_gap_is_one_that_begins_in_the_window() -> None:
    """A slow end of a run is not a change of leader."""
    times = [0, 1, 2, 10, 11, 40]
    assert longest_gap(times, 0, 9) == 8
    assert longest_gap(times, 0, 50) == 29
    assert longest_gap([5], 0, 9) == 0
