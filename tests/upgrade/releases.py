"""Kept releases beside this checkout: programs of theirs.

Owns the environment in which Python takes their modules from where `tools.release` unpacks them,
and what they require from this checkout's environment, whose pins are the same
(`tests/packaging/test_releases.py` installs one whole). Must not know what a program does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools import release

OLD = "0.1.0"
"""The release before this checkout's."""


def unpacked(version: str, folder: Path) -> Path:
    """Unpack both wheels of a release into `folder`, which it returns; once."""
    return release.unpacked(release.find(version), folder)


def python(*arguments: str) -> tuple[str, ...]:
    """A command of Python that takes no module from the folder it is started in."""
    return (sys.executable, "-P", *arguments)


def environment(*folders: Path) -> dict[str, str]:
    """Variables with which Python takes modules from these folders before this checkout."""
    return {"PYTHONPATH": ":".join(map(str, folders))}
