"""Commit subjects: the rule finds what breaks it, the history keeps it, and the hook applies it."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tools import commit_subject

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

BEFORE_THE_RULE = "a144f28ab7f3e44e8b930031b54c4ad38d8e8019"
"""The last commit that was made before the rule was checked."""


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_commit_after_the_rule_keeps_it() -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    known = git(commit_subject.ROOT, "merge-base", "--is-ancestor", BEFORE_THE_RULE, "HEAD")
    if known.returncode != 0:
        pytest.skip(f"no history back to {BEFORE_THE_RULE[:7]}: a shallow clone or an sdist")
    asked = ("log", "--no-merges", "--format=%h %s", f"{BEFORE_THE_RULE}..HEAD")
    commits = [line.partition(" ") for line in git(commit_subject.ROOT, *asked).stdout.splitlines()]
    found = [
        f"{commit} {subject!r}: {wrong}"
        for commit, _, subject in commits
        if (wrong := commit_subject.fault(subject)) is not None
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("subject", "fine"),
    [
        ("machine: count the failures of a batch once", True),
        ("node/raft, journal: step down when the lease ends", True),
        ("Merge branch 'main'", True),
        ("Count the failures of a batch once", False),
        ("machine:count", False),
        ("machine: " + "x" * 63, True),
        ("machine: " + "x" * 64, False),
    ],
)
def test_a_subject_is_an_area_and_at_most_72_characters(subject: str, fine: bool) -> None:
    assert (commit_subject.fault(subject) is None) == fine


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository that uses this checkout's tools and environment."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    for name in ("tools", ".venv"):
        (tmp_path / name).symlink_to(commit_subject.ROOT / name)
    git(tmp_path, "init", "--quiet")
    monkeypatch.setattr(commit_subject, "ROOT", tmp_path)
    return tmp_path


def test_the_hook_refuses_a_long_subject_and_accepts_a_good_one(repository: Path) -> None:
    commit_subject.install()
    commit_subject.install()
    refused = git(repository, "commit", "--allow-empty", "-m", "No area")
    assert refused.returncode == 1
    assert "begin with the area" in refused.stderr
    assert git(repository, "commit", "--allow-empty", "-m", "area: what").returncode == 0


def test_a_hook_of_the_users_own_stays(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = repository / ".git" / "hooks" / "commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    commit_subject.install()
    assert hook.read_text() == "#!/bin/sh\n"
    assert "is yours and stays" in capsys.readouterr().err
