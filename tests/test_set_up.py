"""Set-up: the lock's build tools, the stamp, and the Python that is found."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import set_up

pytestmark = pytest.mark.process


FINDER = set_up.ROOT / "tools" / "find_python.sh"
GOOD = "#!/bin/sh\nexit 0\n"
BAD = "#!/bin/sh\nexit 1\n"


def find(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the finder where only these programs are."""
    return subprocess.run(
        ["/bin/sh", str(FINDER)],
        env={"PATH": str(folder), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def program(folder: Path, name: str, text: str) -> None:
    """A program that answers the finder's question in this way."""
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_the_lock_holds_every_build_tool_with_its_hashes() -> None:
    """Without one of them pip would fetch it from wherever, unpinned."""
    kept = set_up.locked_requirements(set_up.LOCK.read_text(), set_up.BUILD_TOOLS)
    names = re.findall(r"^([a-z-]+)==", kept, re.MULTILINE)
    assert set(names) == set_up.BUILD_TOOLS
    assert all("--hash=sha256:" in part for part in re.split(r"\n(?=\S)", kept.strip()))


def test_the_kept_wheels_are_the_closure_of_the_server_group() -> None:
    """An install without a network needs every requirement of a requirement too."""
    project = tomllib.loads(set_up.PROJECT.read_text())
    pending = list(map(Requirement, project["dependency-groups"]["server"]))
    found: set[str] = set()
    while pending:
        requirement = pending.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        holds = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if holds and name not in found:
            found.add(name)
            pending += map(Requirement, requires(name) or [])
    assert found == set_up.SERVER


def test_a_changed_lock_makes_set_up_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an unchanged one does not."""
    lock = tmp_path / "requirements.lock"
    lock.write_text("a==1")
    monkeypatch.setattr(set_up, "LOCK", lock)
    before = set_up._stamp()
    assert set_up._stamp() == before
    lock.write_text("a==2")
    assert set_up._stamp() != before


def test_a_python_whose_shim_fails_is_skipped(tmp_path: Path) -> None:
    """A version manager puts a name on the PATH for versions that it has not switched on."""
    program(tmp_path, "python3.13", BAD)
    program(tmp_path, "python3.12", GOOD)
    program(tmp_path, "python3", GOOD)
    assert find(tmp_path).stdout == "python3.12\n"


def test_a_named_python_is_used_or_refused(tmp_path: Path) -> None:
    """Never silently another one."""
    program(tmp_path, "python3", GOOD)
    program(tmp_path, "mine", GOOD)
    program(tmp_path, "old", BAD)
    assert find(tmp_path, PYTHON="mine").stdout == "mine\n"
    refused = find(tmp_path, PYTHON="old")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1


def test_a_missing_python_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    """Exit code 1, nothing on stdout."""
    outcome = find(tmp_path)
    assert outcome.returncode == 1
    assert outcome.stdout == ""
    assert re.fullmatch(r"no Python 3\.11 or newer .*python3-venv.*\n", outcome.stderr)


def test_the_finder_and_ci_are_executable() -> None:
    """As files that git knows to be programs, or through sh."""
    assert os.access(set_up.ROOT / ".ci" / "run", os.X_OK)
    assert "make test" in (set_up.ROOT / ".ci" / "run").read_text()
