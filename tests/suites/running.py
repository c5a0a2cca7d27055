"""A run of a suite, file by file, so that a file that hangs loses no other's outcome.

Owns how pytest is called and how its report is read. Must not know which tests apply.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.suites import environment
from tests.suites.plans import Plan

FIXTURES: Final = Path(__file__).parent / "fixtures"

FILE_SECONDS: Final = 1_800.0
"""Time for one file: three times what Celery's longest takes on two cores."""

TEST_SECONDS: Final = 300
"""Time for one test that sets none: what Celery gives its own."""


@dataclass(slots=True)
class Outcome:
    """Counts of a suite, and the tests that were skipped or failed, with the words."""

    plan: Plan
    version: str
    counts: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def explained(self) -> dict[str, str]:
        """The failed tests that do not apply, each with its reason."""
        found = {}
        for test, message in self.failed.items():
            known = [why for begin, why in self.plan.reasons.items() if test.startswith(begin)]
            known += [why for words, why in self.plan.words.items() if words in message]
            if known:
                found[test] = known[0]
        return found

    @property
    def faults(self) -> list[str]:
        """The failed tests that nothing explains."""
        return [test for test in self.failed if test not in self.explained]


def run(plan: Plan, url: str, redis_port: int | None) -> Outcome:
    """Run a suite against the cluster at this URL."""
    top = environment.source(plan.package)
    outcome = Outcome(plan, top.name.removeprefix(f"{plan.package}-"))
    for name, file in plan.laid.items():
        shutil.copyfile(FIXTURES / file, top / plan.folder / name)
    variables = {
        **os.environ,
        "PATH": f"{environment.PYTHON.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(top),
        "TEST_BROKER": url,
        "C_FORCE_ROOT": "1",
    }
    if redis_port is not None:
        variables["TEST_BACKEND"] = f"redis://127.0.0.1:{redis_port}/0"
        variables["REDIS_HOST"], variables["REDIS_PORT"] = "127.0.0.1", str(redis_port)
    for file in plan.files:
        _file(outcome, top, file, variables)
        print(f"{plan.package} {file}: {dict(outcome.counts)} so far", flush=True)
    return outcome


def _file(outcome: Outcome, top: Path, file: str, variables: Mapping[str, str]) -> None:
    name = f"{outcome.plan.package}-{file.replace('/', '-').removesuffix('.py')}"
    report, log = environment.FOLDER / f"{name}.xml", environment.FOLDER / f"{name}.log"
    report.unlink(missing_ok=True)
    # Nothing is run again after a failure, whatever its marks ask for.
    command = [str(environment.PYTHON), "-m", "pytest", "-p", "no:rerunfailures"]
    command += ["-p", "no:cacheprovider", "-q", "--timeout", str(TEST_SECONDS)]
    command += [*outcome.plan.options, f"--junitxml={report}", f"{outcome.plan.folder}/{file}"]
    with log.open("wb") as out:
        try:
            subprocess.run(
                command, cwd=top, env=variables, stdout=out, stderr=out, timeout=FILE_SECONDS
            )
        except subprocess.TimeoutExpired:
            outcome.failed[file] = f"no end within {FILE_SECONDS:g} s"
            return
    if not report.exists():
        outcome.failed[file] = f"no report: see {log.relative_to(environment.ROOT)}"
        return
    read(outcome, report)


def read(outcome: Outcome, report: Path) -> None:
    """Add the tests of a report to an outcome."""
    for test, words, message in _cases(report, outcome.plan.folder):
        outcome.counts[words] += 1
        if words == "skipped":
            outcome.skipped[test] = message
        elif words != "passed":
            outcome.failed[test] = message


def _cases(report: Path, folder: str) -> Iterator[tuple[str, str, str]]:
    """(test, how it ended, the words of the end) of each test."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        place = case.get("classname", "").removeprefix(folder.replace("/", ".")).strip(".")
        test = "::".join([*place.split("."), case.get("name", "")])
        ended, message = "passed", ""
        for child in case:
            if child.tag in ("skipped", "failure", "error"):
                ended = {"skipped": "skipped"}.get(child.tag, "failed")
                message = next(iter((child.get("message") or "").splitlines()), "")
        yield test, ended, message
