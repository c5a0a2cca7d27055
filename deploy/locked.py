"""Fetch what wheels require, and what that requires: of a lock's versions, with its hashes.

    python deploy/locked.py requirements.lock FOLDER fifo_quorum-*.whl fifo_quorum_server-*.whl

Owns the selection; pip checks the hashes, and refuses what the lock does not have.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==")


def requirements_of(wheel: Path) -> set[str]:
    """The names that a wheel requires here, without extras."""
    with zipfile.ZipFile(wheel) as file:
        name = next(one for one in file.namelist() if one.endswith(".dist-info/METADATA"))
        lines = message_from_bytes(file.read(name)).get_all("Requires-Dist") or []
    found = map(Requirement, lines)
    return {
        canonicalize_name(one.name)
        for one in found
        if one.marker is None or one.marker.evaluate({"extra": ""})
    }


def blocks_of(lock: str) -> dict[str, str]:
    """The lines of each package of a lock, by its name."""
    blocks: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lock.splitlines():
        pin = _PIN.match(line)
        if pin is not None:
            current = blocks.setdefault(canonicalize_name(pin[1]), [])
        if pin is not None or line.lstrip().startswith("--hash"):
            current.append(line)
    return {name: "\n".join(lines) for name, lines in blocks.items()}


def download(blocks: dict[str, str], names: set[str], folder: Path) -> None:
    """Have pip fetch these packages as wheels, and build those that come as source.

    Ends the program where the lock lacks one.
    """
    lacking = names - blocks.keys()
    if lacking:
        sys.exit(f"deploy/locked.py: the lock lacks {', '.join(sorted(lacking))}: run make lock")
    file = folder / "locked.txt"
    file.write_text("\n".join(blocks[name].rstrip("\\ ") for name in sorted(names)) + "\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
    options = ["--no-deps", "--require-hashes", "--requirement", file, "--wheel-dir", folder]
    subprocess.run([*pip, *options], check=True)
    file.unlink()


def main(arguments: list[str]) -> None:
    """Download level by level, until nothing is missing."""
    lock, folder, *wheels = map(Path, arguments)
    blocks = blocks_of(lock.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    have = {canonicalize_name(wheel.name.split("-")[0]) for wheel in wheels}
    new = set(wheels)
    while new:
        wanted = set().union(*map(requirements_of, new)) - have
        before = set(folder.glob("*.whl"))
        if wanted:
            download(blocks, wanted, folder)
        have |= wanted
        new = set(folder.glob("*.whl")) - before


if __name__ == "__main__":
    main(sys.argv[1:])
