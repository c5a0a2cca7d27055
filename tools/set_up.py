"""Makes `.venv` from `requirements.lock`, and sees to it that there is a Java for Spark.

Owns the steps of `make setup`. Runs before anything is installed, so it imports the standard
library only and must not import `fifo`, `node` or `bench`. Every file that is installed has a hash
in the lock, the build tools too: they go in first, and then nothing is built in isolation, where
pip would fetch others.

Update with it: the `build` group of `pyproject.toml`, and `make lock`.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
STAMP = ENVIRONMENT / "set-up.stamp"

OLDEST = (3, 11)

BUILD_TOOLS = frozenset(
    {
        "editables",
        "hatchling",
        "packaging",
        "pathspec",
        "pbr",
        "pluggy",
        "setuptools",
        "trove-classifiers",
        "wheel",
    }
)
"""Build requirements of the lock's source distributions and of this project, and their own."""

REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==")


def main() -> int:
    """Bring `.venv` in line with the lock; 0, or 1 with one line on stderr when it cannot be."""
    stamp = _stamp()
    if not _is_current(stamp):
        try:
            _install()
        except subprocess.CalledProcessError as error:
            step = " ".join(str(word) for word in error.cmd[:4])
            print(f"set-up failed in `{step} ...`: the lines above say why", file=sys.stderr)
            return 1
        STAMP.write_text(stamp)
    subprocess.run([PYTHON, "tools/commit_subject.py", "--install"], cwd=ROOT, check=False)
    # Not fatal: everything but Spark works without Java, and it prints a line that says what to do.
    subprocess.run([PYTHON, "-m", "bench.java", "--install"], cwd=ROOT, check=False)
    return 0


def _stamp() -> str:
    """Names what the environment was made from; a change of any of it makes set-up run again."""
    digest = hashlib.sha256()
    for path in (LOCK, PROJECT, Path(__file__)):
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()} {ROOT}\n"


def _is_current(stamp: str) -> bool:
    return _works() and STAMP.is_file() and STAMP.read_text() == stamp


def _works() -> bool:
    """An environment whose Python was removed or is too old is made anew."""
    if not PYTHON.exists():
        return False
    ask = [str(PYTHON), "-c", f"import sys, pip; sys.exit(sys.version_info < {OLDEST})"]
    return subprocess.run(ask, capture_output=True, check=False).returncode == 0


def _install() -> None:
    STAMP.unlink(missing_ok=True)
    if not _works():
        version = ".".join(str(part) for part in sys.version_info[:3])
        print(f"making {ENVIRONMENT.name} with Python {version}", flush=True)
        venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(ENVIRONMENT)
    print("installing what requirements.lock names (the first time: a few minutes)", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as build_tools:
        build_tools.write(_build_tools_of(LOCK.read_text()))
        build_tools.flush()
        _pip("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", build_tools.name)
    _pip("--require-hashes", "--no-deps", "--no-build-isolation", "-r", str(LOCK))
    _pip("--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def _pip(*arguments: str) -> None:
    # pip says on stderr what went wrong; what it says while all is well would bury our own lines.
    subprocess.run(
        [str(PYTHON), "-m", "pip", "install", "--quiet", *arguments], cwd=ROOT, check=True
    )


def _build_tools_of(lock: str) -> str:
    """Those requirements of the lock, hashes and all, that building needs."""
    kept: list[str] = []
    keep = False
    for line in lock.splitlines(keepends=True):
        match = REQUIREMENT.match(line)
        if match:
            keep = match["name"].lower() in BUILD_TOOLS
        if keep:
            kept.append(line)
    return "".join(kept)


if __name__ == "__main__":
    sys.exit(main())
