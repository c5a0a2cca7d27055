"""The page, in a real browser: everything is there, visible and in place, without a network."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from bench.check.command import workload_of
from bench.check.figures import Fault, Figures, Wait
from bench.check.legend import LEGEND
from bench.check.page import render
from bench.check.settings import write_settings
from bench.check.verdict import RULES, Broken, Example, Verdict
from tests.support.browser import BROWSER_SECONDS, WIDTHS, browse, faults_of, needs_browser

pytestmark = pytest.mark.slow


FIGURES = Figures(
    seconds=60.0,
    bin_s=1,
    rates={"published": dict.fromkeys(range(60), 900.0), "acked": dict.fromkeys(range(60), 880.0)},
    waits={"publish to confirm": {n: Wait(900, 2.0, 4.0, 9.0 + n, 80.0) for n in range(60)}},
    totals={"publish to confirm": Wait(54_000, 2.0, 4.0, 30.0, 80.0)},
    held={0: 10, 5: 30_000, 12: 4},
    attempts={1: 50_000, 2: 400, 3: 2},
    outcomes={"ack ok": 53_000, "nack ok": 400},
    faults=(Fault("kill n1", 20.0, 32.0), Fault("pause n2", 40.0, None)),
    leaders=((21.0, "n2 leads"),),
)
EVENT = {"type": "ok", "f": "deliver", "value": {"id": "1.1.7"}, "time": 3.0, "index": 9}
BAD = Verdict(
    events=54_321,
    counts={"publish ok": 54_000},
    broken=(Broken("S3", 12, (Example("1.1.7", "came <back> after its ack", (EVENT,)),)),),
    unjudged={"S12": "no node was <seen>"},
)
GOOD = Verdict(events=54_321, counts={"publish ok": 54_000}, broken=())


@pytest.mark.process
@needs_browser
@pytest.mark.timeout(4 * BROWSER_SECONDS)
def test_a_browser_shows_every_picture_in_its_place(tmp_path: Path) -> None:
    """Wide and narrow."""
    page = render(BAD, FIGURES, [("history", "a/b")])
    for width in WIDTHS:
        faults = faults_of(page, tmp_path, width, pictures=4)
        assert faults == "none", f"at {width}"


@pytest.mark.process
@needs_browser
@pytest.mark.timeout(2 * BROWSER_SECONDS)
def test_the_curves_and_faults_are_painted(tmp_path: Path) -> None:
    """In their colours, in a screenshot."""
    from matplotlib import image

    path, picture = tmp_path / "report.html", tmp_path / "report.png"
    path.write_text(render(GOOD, FIGURES, []))
    browse(path, WIDTHS[0], f"--screenshot={picture}")
    pixels = (image.imread(picture)[:, :, :3] * 255).round().astype(int)
    for colour in ((0x1B, 0x6C, 0xA8), (0xE3, 0xF4, 0xE6)):
        near = (abs(pixels - colour).max(axis=2) <= 3).sum()
        assert near > 500, f"{near} pixels of {colour}"
    reddish = ((pixels[:, :, 0] - pixels[:, :, 1]) > 15).sum()
    assert reddish > 5_000, "the faults are shaded"


def test_a_page_names_every_rule_and_needs_nothing_else() -> None:
    page = render(BAD, FIGURES, [])
    for words in RULES.values():
        assert html.escape(words) in page
    assert "broken by 12" in page
    assert "not judged: no node was &lt;seen&gt;" in page
    assert "came &lt;back&gt; after its ack" in page
    assert "and 11 more" in page
    assert "kill n1" in page
    assert not re.search(r"<(?:script|link|img)|@import|url\((?!#)", page)


def test_an_example_leads_to_its_events_and_a_rule_to_what_breaks_it() -> None:
    """Every link of the page leads somewhere in it."""
    page = render(BAD, FIGURES, [])
    assert '1.1.7: came &lt;back&gt; after its ack; events <a href="#event-9">9</a>' in page
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert {"event-9", *(f"legend-{rule}" for rule in RULES)} <= links
    assert links <= set(re.findall(r'id="([^"]+)"', page))


def test_the_legend_is_that_of_the_docs() -> None:
    """Word for word, a line for each rule."""
    assert list(LEGEND) == list(RULES)
    text = " ".join(Path("docs/history.md").read_text(encoding="utf-8").split())
    for rule, words in LEGEND.items():
        assert f"- {rule}: {words}" in text


def test_a_report_has_the_settings_of_the_workload(tmp_path: Path) -> None:
    """Which a load job leaves beside its history; a history without any has none."""
    assert workload_of(tmp_path) == []
    write_settings(tmp_path, {"name": "poison", "queue": {"lock": 2.5, "max_lock": None}})
    settings = workload_of(tmp_path)
    assert settings == [("workload.name", "poison"), ("workload.queue.lock", "2.5")]
    assert "<th>workload.queue.lock</th><td>2.5</td>" in render(GOOD, FIGURES, settings)


def test_the_headline_says_what_matters() -> None:
    assert "1 of 17 rules are broken: S3." in render(BAD, FIGURES, [])
    assert "Every rule holds over 54,321 events." in render(GOOD, FIGURES, [])
