"""A real browser that looks at a page: headless, without a network.

Owns how it is called and what it measures of any report: pictures in their place, nothing cut,
nothing loaded from elsewhere.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
WIDTHS = (1200, 480)
BROWSER_SECONDS = 90

needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium (Debian: apt-get install chromium)"
)

LOOK = """<script>
const faults = [];
const inside = e => { const r = e.getBoundingClientRect();
  return r.width > 200 && r.height > 100 && r.left >= 0 && r.right <= innerWidth + 1; };
const pictures = [...document.querySelectorAll("svg")];
if (pictures.length != PICTURES) faults.push("pictures: " + pictures.length);
pictures.forEach((p, n) => { if (!inside(p)) faults.push("picture " + n + " is out of place"); });
pictures.forEach((p, n) => { if (!p.querySelectorAll("path").length) faults.push("empty " + n); });
if (document.documentElement.scrollWidth > innerWidth + 1) faults.push("wider than the window");
if (performance.getEntriesByType("resource").length) faults.push("something was loaded");
document.querySelectorAll("th, td, p").forEach(e => {
  if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth) faults.push("cut: " + e.textContent); });
document.body.setAttribute("data-faults", faults.join("; ") || "none");
</script></body>"""


def browse(path: Path, width: int, *more: str) -> str:
    """Return what the browser prints of a page; it can reach no network."""
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


def faults_of(page: str, folder: Path, width: int, *, pictures: int) -> str:
    """Return the faults of a page at this width, or "none": the browser measures them in a copy of
    the page that asks for it."""
    path = folder / "looked-at.html"
    path.write_text(page.replace("</body>", LOOK.replace("PICTURES", str(pictures))))
    (faults,) = re.findall(r'data-faults="([^"]*)"', browse(path, width, "--dump-dom"))
    return html.unescape(faults)
