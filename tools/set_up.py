"""Make `.venv` from `requirements.lock`, and provide a Java for Spark.

Owns the steps of `make setup`. Runs before anything is installed, so it imports the standard
library only and must not import `fifo`, `node` or `bench`. Every file that is installed has a hash
in the lock, the build tools too: they are installed first, and then nothing is built in isolation,
where pip would download others. The wheels of the server's dependencies are kept in `.venv/wheels`,
from which tests/packaging installs both distributions without a network.

Update with it: the `build` and `server` groups of `pyproject.toml`, and `make lock`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
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
WHEELS = ENVIRONMENT / "wheels"

OLDEST = (3, 11)

PYTHONS = ("3.11", "3.12", "3.13")
"""Versions that the distributions support."""

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

SERVER = frozenset(
    {
        "aiohappyeyeballs",
        "aiohttp",
        "aiosignal",
        "annotated-doc",
        "annotated-types",
        "attrs",
        "crc32c",
        "frozenlist",
        "idna",
        "markdown-it-py",
        "mdurl",
        "msgpack",
        "multidict",
        "propcache",
        "pydantic",
        "pydantic-core",
        "pygments",
        "pysyncobj",
        "rich",
        "shellingham",
        "sortedcontainers",
        "typer",
        "typing-extensions",
        "typing-inspection",
        "uvloop",
        "yarl",
    }
)
"""Requirements of the `server` group, with their own."""

REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==")


def main() -> int:
    """Bring `.venv` in line with the lock; 0, or 1 with one line on stderr when it cannot be."""
    stamp = _stamp()
    if not _is_current(stamp):
        try:
            _install()
        except subprocess.CalledProcessError as error:
            step = " ".join(str(word) for word in error.cmd[:4])
            print(f"set-up failed in `{step} ...`: see the lines above", file=sys.stderr)
            return 1
        STAMP.write_text(stamp)
    subprocess.run([PYTHON, "tools/commit_subject.py", "--install"], cwd=ROOT, check=False)
    # Not fatal: everything but Spark works without Java, and the script prints the remedy.
    subprocess.run([PYTHON, "-m", "bench.java", "--install"], cwd=ROOT, check=False)
    return 0


def _stamp() -> str:
    """Digest of the sources of the environment; a change of any makes set-up run again."""
    digest = hashlib.sha256()
    for path in (LOCK, PROJECT, Path(__file__)):
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()} {ROOT}\n"


def _is_current(stamp: str) -> bool:
    return _works() and STAMP.is_file() and STAMP.read_text() == stamp


def _works() -> bool:
    """Whether the environment has a working Python that is new enough."""
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
    _pip("install", "--only-binary", ":all:", locked=BUILD_TOOLS)
    _pip("install", "--require-hashes", "--no-deps", "--no-build-isolation", "-r", str(LOCK))
    _pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    _keep_wheels()


def _keep_wheels() -> None:
    """Fill WHEELS for the environment's Python, and for each other one on this machine."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    _pip("wheel", "--no-build-isolation", "--wheel-dir", str(WHEELS), locked=SERVER)
    pure = {distribution_of(wheel) for wheel in WHEELS.glob("*-none-any.whl")}
    download = ("download", "--only-binary", ":all:", "--dest", str(WHEELS))
    for version in sorted(set(PYTHONS) - {python_version(str(PYTHON))}):
        if python_version(f"python{version}") is None:
            continue
        try:
            _pip(*download, "--python-version", version, locked=SERVER - pure)
        except subprocess.CalledProcessError:
            print(f"no wheels for Python {version}: tests/packaging skips it", flush=True)


def distribution_of(wheel: Path) -> str:
    """Name of a wheel's distribution, as the lock writes it."""
    return wheel.name.partition("-")[0].replace("_", "-").lower()


def python_version(command: str) -> str | None:
    """Version of a Python as in `3.12`; None where the command does not run."""
    ask = [command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        answer = subprocess.run(ask, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def _pip(*arguments: str, locked: frozenset[str] | None = None) -> None:
    """Run pip, with the `locked` requirements and their hashes if given."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        if locked is not None:
            requirements.write(locked_requirements(LOCK.read_text(), locked))
            requirements.flush()
            arguments = (*arguments, "--require-hashes", "--no-deps", "-r", requirements.name)
        # Quiet, because pip's progress would bury our own lines; its errors are on stderr.
        subprocess.run([str(PYTHON), "-m", "pip", "--quiet", *arguments], cwd=ROOT, check=True)


def locked_requirements(lock: str, names: frozenset[str]) -> str:
    """Those requirements of the lock, hashes included, that have one of the names."""
    kept: list[str] = []
    keep = False
    for line in lock.splitlines(keepends=True):
        match = REQUIREMENT.match(line)
        if match:
            keep = match["name"].lower() in names
        if keep:
            kept.append(line)
    return "".join(kept)


if __name__ == "__main__":
    sys.exit(main())
