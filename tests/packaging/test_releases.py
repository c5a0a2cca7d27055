"""The releases that are kept: whole, made from their commits, and of use."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.packaging.conftest import installed
from tools import release, set_up
from tools.release import RECORD, REQUIREMENTS, Release, ReleaseRefused

KEPT = release.kept()

pytestmark = pytest.mark.process


def git(*arguments: str, checkout: Path = set_up.ROOT) -> str:
    """The output of a git command."""
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("one", KEPT, ids=lambda one: one.version)
def test_a_kept_release_is_whole(one: Release) -> None:
    files = {path.name for path in one.folder.iterdir()}
    assert files == {RECORD, REQUIREMENTS, *one.wheels}
    for name, digest in one.wheels.items():
        assert hashlib.sha256((one.folder / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.slow
@pytest.mark.parametrize("one", KEPT, ids=lambda one: one.version)
def test_its_commit_gives_the_same_wheels_again(one: Release, tmp_path: Path) -> None:
    try:
        git("cat-file", "-e", f"{one.commit}^{{commit}}")
    except subprocess.CalledProcessError:
        pytest.skip(f"commit {one.commit} is not in this clone: fetch all of it")
    checkout, wheels = tmp_path / "checkout", tmp_path / "wheels"
    git("clone", "--quiet", "--no-checkout", str(set_up.ROOT), str(checkout))
    git("checkout", "--quiet", one.commit, checkout=checkout)
    assert release.build(checkout, wheels) == one.wheels


@pytest.mark.slow
@pytest.mark.parametrize("one", KEPT, ids=lambda one: one.version)
def test_it_is_installed_beside_this_checkout(one: Release, python: str, tmp_path: Path) -> None:
    environment = installed(
        python, tmp_path / "v", f"fifo-quorum[server]=={one.version}", one.folder
    )
    assert one.version in environment.run("fifo", "--version").stdout


def checkout_with(folder: Path, changelog: str) -> Path:
    """A repository that has what a release looks at before it builds anything."""
    folder.mkdir()
    (folder / "CHANGELOG.md").write_text(changelog)
    git("init", "--quiet", checkout=folder)
    git("add", ".", checkout=folder)
    git("commit", "--quiet", "-m", "tests: begin", checkout=folder)
    return folder


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("changed", "files are new or changed and not committed: commit them first"),
        ("undated", "CHANGELOG.md has no line `## 9.9.9 (date)`"),
        ("again", "9.9.9 was released: raise the version in pyproject.toml"),
    ],
)
def test_a_release_is_refused(
    what: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dated = "not released" if what == "undated" else "2026-11-23"
    checkout = checkout_with(tmp_path / "checkout", f"## 9.9.9 ({dated})\n")
    monkeypatch.setattr(set_up, "ROOT", checkout)
    monkeypatch.setattr(release, "RELEASES", checkout / "releases")
    if what == "changed":
        (checkout / "CHANGELOG.md").write_text("other")
    if what == "again":
        (checkout / "releases" / "9.9.9").mkdir(parents=True)
    with pytest.raises(ReleaseRefused, match="^" + error.replace("(", r"\(").replace(")", r"\)")):
        release._release("9.9.9")
