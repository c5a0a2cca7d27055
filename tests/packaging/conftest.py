"""Both distributions, built once, and empty environments to install them into.

Owns the build and the call of pip without a network: requirements come from the wheels that set-up
kept, and from no index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools import set_up

SERVER_PROJECT = set_up.ROOT / "packaging" / "server"
STEP_S = 100


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment outside the checkout."""

    folder: Path

    def environ(self) -> dict[str, str]:
        """Variables of its programs: nothing of the checkout or of this process."""
        return {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder)}

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end."""
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=self.folder,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )


def pip(*arguments: str, links: tuple[Path, ...] = ()) -> None:
    """Run the checkout's pip without an index; `links` are the folders it may take wheels from."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *arguments],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": " ".join(folder.as_uri() for folder in links),
        },
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def build(project: Path, target: Path) -> Path:
    """Build the wheel of a project with the build tools of the checkout's environment."""
    before = set(target.iterdir())
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(project))
    (wheel,) = set(target.iterdir()) - before
    return wheel


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client's wheel and the server's."""
    folder = tmp_path_factory.mktemp("distributions")
    build(set_up.ROOT, folder)
    build(SERVER_PROJECT, folder)
    return folder


@pytest.fixture(params=set_up.PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    """A Python of each supported version; skips those that this machine lacks."""
    version: str = request.param
    if version == set_up.python_version(sys.executable):
        assert list(set_up.WHEELS.glob("*.whl")), "no wheels kept: run `make setup`"
        return sys.executable
    command = f"python{version}"
    if set_up.python_version(command) != version:
        pytest.skip(f"{command} is not installed here")
    if not list(set_up.WHEELS.glob(f"*-cp{version.replace('.', '')}-*.whl")):
        pytest.skip(f"no wheels kept for {command}: run `make setup` with access to an index")
    return command


def installed(python: str, folder: Path, requirement: str, distributions: Path) -> Environment:
    """Make an empty environment and install a requirement of ours into it."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    interpreter = str(folder / "bin" / "python")
    pip("--python", interpreter, "install", requirement, links=(distributions, set_up.WHEELS))
    return Environment(folder)
