"""Other Pythons on this machine, for the proof that a log gives the same bytes under each.

Searches the usual places: on PATH by their version's name, in pyenv's versions, in uv's folder.
The machine needs nothing but the standard library and sortedcontainers, so another interpreter is
lent that one package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import sortedcontainers

MINORS = (11, 12, 13, 14)
"""The Python 3 versions that the project supports, and the next."""

ROOT = Path(__file__).parents[2]


def candidates(minor: int) -> list[Path]:
    """List the paths where an interpreter of this version may be installed."""
    name = f"python3.{minor}"
    found = [Path(path) for path in [shutil.which(name)] if path]
    for root in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"):
        if root:
            found += Path(root).glob(f"versions/3.{minor}.*/bin/{name}")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    return [*found, *uv.glob(f"cpython-3.{minor}.*/bin/{name}")]


def run(interpreter: Path, script: str, folder: Path, seed: str = "0") -> str:
    """Run a script with imports from a folder; return its output. Raises CalledProcessError."""
    done = subprocess.run(
        [str(interpreter), "-c", script],
        env={"PATH": os.defpath, "PYTHONPATH": str(folder), "PYTHONHASHSEED": seed},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


def interpreter(minor: int) -> Path | None:
    """Find an interpreter of this version that starts; None without one."""
    for path in candidates(minor):
        try:
            version = run(path, "import sys; print(sys.version_info[1])", ROOT)
        except (OSError, subprocess.SubprocessError):
            continue  # a shim of pyenv whose version is not chosen, say
        if version == str(minor):
            return path
    return None


def lend(folder: Path) -> Path:
    """A folder with the machine's imports only: other packages may not fit another version."""
    package = Path(sortedcontainers.__file__).parent
    (folder / "sortedcontainers").symlink_to(package, target_is_directory=True)
    (folder / "fifo").mkdir()
    # A package of its own: without this, one that is installed elsewhere would come before it.
    (folder / "fifo" / "__init__.py").touch()
    for room in ("machine", "words"):
        (folder / "fifo" / room).symlink_to(ROOT / "fifo" / room, target_is_directory=True)
    return folder
