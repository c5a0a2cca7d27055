"""Flower in a real browser, beside a live worker: what an operator sees of it.

Owns the two processes and what is looked for on the pages. Must not know a suite.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.loopback import free_ports
from tests.celery.app import EARLY
from tests.suites import environment
from tests.support.browser import BROWSER

TASKS: Final = 3
LOOKS: Final = 10
"""Looks at a page before it counts as wrong: a worker shows its figures every 2 s."""

PAGES: Final = {
    "": ("w@drill Online", f"Total 0 {TASKS} 0 {TASKS}"),
    "tasks": (EARLY, f"Showing 1 to {TASKS} of {TASKS} tasks"),
}
"""Texts that stand on a page: workers with their counts, tasks with their states."""

_SEND: Final = """
from tests.celery.app import EARLY, app
for number in range({tasks}):
    app.send_task(EARLY, [number]).get(timeout=60)
"""


def look(url: str, folder: Path) -> str:
    """Show three tasks of a worker to Flower and Flower to a browser; one line that says what was
    seen. Raises AssertionError."""
    if BROWSER is None:
        return "Flower was not looked at: no chromium (Debian: apt-get install chromium)."
    (port,) = free_ports(1)
    variables = {
        **os.environ,
        "PYTHONPATH": str(environment.ROOT),
        "DRILL_URL": url,
        "DRILL_LOG": str(folder / "runs.log"),
        "C_FORCE_ROOT": "1",
    }
    celery = [str(environment.PYTHON), "-m", "celery", "-A", "tests.celery.app"]
    worker = [*celery, "worker", "-P", "threads", "-Q", "early", "-n", "w@drill", "-E"]
    flower = [*celery, "flower", "--address=127.0.0.1", f"--port={port}"]
    with _process(flower, variables, folder / "flower.log"):
        _page(folder, port, "", "Cluster overview")  # it listens to events from here on
        with _process(worker, variables, folder / "worker.log"):
            send = [str(environment.PYTHON), "-c", _SEND.format(tasks=TASKS)]
            subprocess.run(send, env=variables, check=True, timeout=120)
            for path, words in PAGES.items():
                text = _page(folder, port, path, *words)
            assert text.count("SUCCESS") == TASKS, text
    return f"Flower showed the worker and its {TASKS} tasks to a browser."


@contextmanager
def _process(
    command: Sequence[str], variables: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=variables, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _page(folder: Path, port: int, path: str, *words: str) -> str:
    """The text of a page that has all words, after some looks."""
    for _ in range(LOOKS):
        text = _text(folder, f"http://127.0.0.1:{port}/{path}")
        if all(word in text for word in words):
            return text
        threading.Event().wait(1)
    raise AssertionError(f"Flower's page /{path} lacks one of {words}: {text}")


def _text(folder: Path, url: str) -> str:
    """The page as the browser has it once its scripts have run, without its tags."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000")
    done = subprocess.run(
        [str(BROWSER), *options, f"--user-data-dir={folder / 'profile'}", "--dump-dom", url],
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    shown = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", shown)).split())
