"""Kept releases beside this checkout: unpacked, and programs of theirs.

Owns unpacking both wheels of a release, and the environment in which Python takes its modules from
there and what they require from this checkout's environment, whose pins are the same
(`tests/packaging/test_releases.py` installs one whole). Must not know what a program does.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from tools import release


def kept(version: str) -> release.Release:
    """The release of this version. Raises LookupError."""
    for one in release.kept():
        if one.version == version:
            return one
    raise LookupError(f"tests/releases has no {version}")


def unpacked(version: str, folder: Path) -> Path:
    """Unpack both wheels of a release into `folder`, which it returns; once."""
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}.fresh")
        for name in kept(version).wheels:
            with zipfile.ZipFile(kept(version).folder / name) as wheel:
                wheel.extractall(fresh)
        fresh.rename(folder)
    return folder


def python(*arguments: str) -> tuple[str, ...]:
    """A command of Python that takes no module from the folder it is started in."""
    return (sys.executable, "-P", *arguments)


def environment(*folders: Path) -> dict[str, str]:
    """Variables with which Python takes modules from these folders before this checkout."""
    return {"PYTHONPATH": ":".join(map(str, folders))}
