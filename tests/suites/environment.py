"""The environment of the suites of others, and their source packages.

Owns the folder `build/suites`, which may be deleted at any time. The versions are those of the
lock, so that what is shipped is what is run. Must not know how a suite is run.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "suites"
ENVIRONMENT: Final = FOLDER / "venv"
PYTHON: Final = ENVIRONMENT / "bin" / "python"

OF_THE_SUITES: Final = (
    "cbor2",
    "cryptography",
    "django",
    "flower",
    "freezegun",
    "orjson",
    "pika",
    "pydantic",
    "pytest-asyncio",
    "pytest-subtests",
    "pytest-timeout",
    "python-dateutil",
    "redis",
    "sqlalchemy",
)
"""Packages that the tests of others import beside pytest and their own."""


def make(packages: Sequence[str]) -> None:
    """Have the environment, with these packages as the lock has them, and this checkout."""
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pinned = [f"{name}=={version(name)}" for name in [*packages, "msgpack", "pytest"]]
    _pip(PYTHON, "install", *pinned, *OF_THE_SUITES)
    _pip(PYTHON, "install", "--no-deps", "--editable", str(ROOT))


def source(package: str) -> Path:
    """The unpacked source package of what is installed here, freshly unpacked."""
    archive = f"{package}-{version(package)}.tar.gz"
    if not (FOLDER / archive).exists():
        # Its metadata is made by the build tools of the lock, which are here.
        options = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation")
        wanted = f"{package}=={version(package)}"
        _pip(Path(sys.executable), "download", *options, "--dest", str(FOLDER), wanted)
    with tarfile.open(FOLDER / archive) as packed:
        packed.extractall(FOLDER, filter="data")
    return FOLDER / archive.removesuffix(".tar.gz")


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", arguments[0], "-qqq", *arguments[1:]], check=True)
