"""Build the two wheels of a release and keep them in `tests/releases`: `make release`.

Owns the steps of a release and the form of what is kept of it: the wheels, the requirements that
they were tested with, and `release.toml` with their hashes and the commit that they were built
from. The wheels are those that a build of that commit gives again, byte by byte. Standard library
only. Must not know what is tested with them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tools import set_up

RELEASES = set_up.ROOT / "tests" / "releases"
SERVER = Path("packaging", "server")
REQUIREMENTS = "requirements.txt"
RECORD = "release.toml"


class ReleaseRefused(Exception):
    """A release that cannot be made from this checkout; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release as it is kept. `wheels`: SHA-256 by file name."""

    version: str
    commit: str
    wheels: dict[str, str]

    @property
    def folder(self) -> Path:
        """The place of its files."""
        return RELEASES / self.version


def kept() -> list[Release]:
    """All releases that are kept, by version."""
    return [_read(path) for path in sorted(RELEASES.glob(f"*/{RECORD}"))]


def find(version: str) -> Release:
    """The release of this version. Raises LookupError."""
    for one in kept():
        if one.version == version:
            return one
    raise LookupError(f"tests/releases has no {version}")


def unpacked(one: Release, folder: Path) -> Path:
    """Unpack both wheels of a release into `folder`, which it returns; once."""
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}.fresh")
        for name in one.wheels:
            with zipfile.ZipFile(one.folder / name) as wheel:
                wheel.extractall(fresh)
        fresh.rename(folder)
    return folder


def _read(path: Path) -> Release:
    found = tomllib.loads(path.read_text())
    return Release(found["version"], found["commit"], found["wheels"])


def build(checkout: Path, folder: Path) -> dict[str, str]:
    """Build both wheels of a checkout into `folder`; their hashes by name. The times in them are
    that of the commit."""
    seconds = _git("log", "-1", "--format=%ct", checkout=checkout)
    for project in (checkout, checkout / SERVER):
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps"),
                *("--no-build-isolation", "--wheel-dir", str(folder), str(project)),
            ],
            env={**os.environ, "SOURCE_DATE_EPOCH": seconds, "PIP_NO_INDEX": "1"},
            check=True,
        )
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.whl"))
    }


def main() -> int:
    """Make the release that pyproject.toml names; 0, or 1 with one line on stderr."""
    try:
        made = _release(tomllib.loads(set_up.PROJECT.read_text())["project"]["version"])
    except ReleaseRefused as refused:
        print(f"release: {refused}", file=sys.stderr)
        return 1
    shown = made.folder.relative_to(set_up.ROOT)
    print(f"{shown}: {', '.join(made.wheels)} of commit {made.commit[:12]}")
    print(f'next: git add {shown} && git commit -m "release: keep the wheels of {made.version}"')
    print(f"      git tag -a v{made.version} -m 'fifo {made.version}' {made.commit}")
    return 0


def _release(version: str) -> Release:
    if _git("status", "--porcelain"):
        raise ReleaseRefused("files are new or changed and not committed: commit them first")
    changelog = (set_up.ROOT / "CHANGELOG.md").read_text()
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        raise ReleaseRefused(
            f"CHANGELOG.md has no line `## {version} (date)`: write the day of the release there"
        )
    folder = RELEASES / version
    if folder.exists():
        raise ReleaseRefused(f"{version} was released: raise the version in pyproject.toml")
    with tempfile.TemporaryDirectory() as made:
        wheels = build(set_up.ROOT, Path(made))
        folder.mkdir(parents=True)
        for name in wheels:
            shutil.copyfile(Path(made, name), folder / name)
    lock = set_up.locked_requirements(set_up.LOCK.read_text(), set_up.SERVER)
    (folder / REQUIREMENTS).write_text(lock)
    commit = _git("rev-parse", "HEAD")
    lines = [f'version = "{version}"', f'commit = "{commit}"', "", "[wheels]"]
    lines += [f'"{name}" = "{digest}"' for name, digest in wheels.items()]
    (folder / RECORD).write_text("\n".join(lines) + "\n")
    return Release(version, commit, wheels)


def _git(*arguments: str, checkout: Path | None = None) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=checkout or set_up.ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
