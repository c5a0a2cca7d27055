"""The page, in a real browser: everything is there, visible and in place, without a network."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.check.figures import Fault, Figures, Wait
from bench.check.page import render
from bench.check.verdict import RULES, Broken, Example, Verdict

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
WIDTHS = (1200, 480)
BROWSER_SECONDS = 90

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

LOOK = """<script>
const faults = [];
const inside = e => { const r = e.getBoundingClientRect();
  return r.width > 200 && r.height > 100 && r.left >= 0 && r.right <= innerWidth + 1; };
const pictures = [...document.querySelectorAll("svg")];
if (pictures.length != 4) faults.push("pictures: " + pictures.length);
pictures.forEach((p, n) => { if (!inside(p)) faults.push("picture " + n + " is out of place"); });
pictures.forEach((p, n) => { if (!p.querySelectorAll("path").length) faults.push("empty " + n); });
if (document.documentElement.scrollWidth > innerWidth + 1) faults.push("wider than the window");
if (performance.getEntriesByType("resource").length) faults.push("something was loaded");
document.querySelectorAll("th, td, p").forEach(e => {
  if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth) faults.push("cut: " + e.textContent); });
document.body.setAttribute("data-faults", faults.join("; ") || "none");
</script></body>"""


def browse(path: Path, width: int, *more: str) -> str:
    """What the browser prints of a page; it can reach no network."""
    assert BROWSER is not None
    profile = path.parent / f"profile-{width}"
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"),
            *(f"--window-size={width},2400", *more, path.as_uri()),
        ],
        env={**os.environ, "HOME": str(path.parent)},
        capture_output=True,
        text=True,
        timeout=BROWSER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(BROWSER is None, reason="no chromium (Debian: apt-get install chromium)")
@pytest.mark.timeout(4 * BROWSER_SECONDS)
def test_a_browser_shows_every_picture_in_its_place(tmp_path: Path) -> None:
    """Wide and narrow; measured by the browser itself, in a copy of the page that asks it to."""
    path = tmp_path / "report.html"
    path.write_text(render(BAD, FIGURES, [("history", "a/b")]).replace("</body>", LOOK))
    for width in WIDTHS:
        shown = browse(path, width, "--dump-dom")
        (faults,) = re.findall(r'data-faults="([^"]*)"', shown)
        assert faults == "none", f"at {width}: {html.unescape(faults)}"


@pytest.mark.skipif(BROWSER is None, reason="no chromium (Debian: apt-get install chromium)")
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


def test_the_headline_says_what_matters() -> None:
    assert "1 of 17 rules are broken: S3." in render(BAD, FIGURES, [])
    assert "Every rule holds over 54,321 events." in render(GOOD, FIGURES, [])
