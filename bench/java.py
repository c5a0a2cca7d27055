"""Finds a Java for Spark; `python -m bench.java --install` installs Debian's where there is none.

Owns the answer to "which Java": 17 or newer, from JAVA_HOME, the PATH, or the usual folders. Knows
nothing of Spark, and imports the standard library only, because set-up runs it in an environment
that may be half made. Update with it: the Java that the README names.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

OLDEST_JAVA = 17
"""The oldest that Spark 4 starts on."""

PROVEN_JAVAS = (21, 17)
"""Taken first where several are installed: Spark runs its own tests on these."""

JAVA_FOLDERS = (
    "/usr/lib/jvm",
    "/opt/java",
    "/Library/Java/JavaVirtualMachines",
    "~/.sdkman/candidates/java",
    "~/.jdks",
)
"""Where distributions, installers and editors put Javas, one folder each."""

JAVA_START_LIMIT_S = 20.0
"""A Java that takes longer to say its version would not serve; a loaded laptop needs a second."""

DEBIAN_PACKAGES = ("openjdk-21-jre-headless", "openjdk-17-jre-headless", "default-jre-headless")
"""The first that the release has; the default is too old on some that are still in use."""

INSTALL_HINT = (
    f"install Java {OLDEST_JAVA} or newer (Debian, Ubuntu: sudo apt-get install"
    " openjdk-17-jre-headless; macOS: brew install openjdk@21), or point JAVA_HOME at one"
)

VERSION = re.compile(r"""version\s*=?\s*"?(?:1\.)?(?P<major>\d+)""", re.IGNORECASE)
HOME = re.compile(r"^\s*java\.home = (?P<home>.+?)\s*$", re.MULTILINE)


class Java(NamedTuple):
    """An installed Java: the folder that JAVA_HOME names, and the major version."""

    home: Path
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java | None:
    """The first that is new enough: JAVA_HOME, PATH, then the usual folders (proven ones first)."""
    env = os.environ if environment is None else environment
    for home in _homes_named(env):
        java = _inspect(home)
        if java is not None and java.version >= OLDEST_JAVA:
            return java
    installed = [java for java in map(_inspect, _homes_in(JAVA_FOLDERS)) if java is not None]
    fitting = [java for java in installed if java.version >= OLDEST_JAVA]
    return max(fitting, key=_preference, default=None)


def install_java() -> Java | None:
    """Install Debian's headless Java if this user may; None where that cannot be or failed."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return None
    print(f"no Java {OLDEST_JAVA} or newer: installing one with apt-get", flush=True)
    # Without fresh lists a new image knows no packages at all; with stale ones it may still know
    # it.
    _apt("apt-get", "--quiet", "update")
    for package in DEBIAN_PACKAGES:
        known = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
        if known.returncode == 0:
            _apt("apt-get", "--quiet", "install", "--yes", "--no-install-recommends", package)
            java = find_java()
            if java is not None:
                return java
    return None


def _apt(*command: str) -> None:
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    subprocess.run(command, env=env, check=False)


def _preference(java: Java) -> tuple[bool, int]:
    return java.version in PROVEN_JAVAS, java.version


def _homes_named(env: Mapping[str, str]) -> Iterator[Path]:
    if env.get("JAVA_HOME"):
        yield Path(env["JAVA_HOME"])
    on_path = shutil.which("java", path=env.get("PATH"))
    if on_path is not None:
        # A link leads home directly; a version manager's shim has to be asked.
        yield Path(on_path).resolve().parent.parent
        match = HOME.search(_ask(Path(on_path), "-XshowSettings:properties"))
        if match:
            yield Path(match["home"])


def _homes_in(folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        path = Path(folder).expanduser()
        # Missing, or in somebody else's home: then there is none for us.
        with contextlib.suppress(OSError):
            for child in sorted(path.iterdir()):
                yield child
                yield child / "Contents" / "Home"


def _inspect(home: Path) -> Java | None:
    """Read the version from the release file that every Java carries, else ask the program."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK) or program.is_dir():
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if os.access(release, os.R_OK) else _ask(program)
    match = VERSION.search(text)
    return Java(home, int(match["major"])) if match else None


def _ask(program: Path, *options: str) -> str:
    try:
        outcome = subprocess.run(
            [program, *options, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_START_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return outcome.stdout + outcome.stderr if outcome.returncode == 0 else ""


def main() -> int:
    """Say which Java Spark would get; 1 and one line that says what to do where there is none."""
    parser = argparse.ArgumentParser(prog="python -m bench.java", description=main.__doc__)
    parser.add_argument("--install", action="store_true", help="install Debian's if there is none")
    arguments = parser.parse_args()
    java = find_java()
    if java is None and arguments.install:
        java = install_java()
    if java is None:
        print(f"no Java for Spark: {INSTALL_HINT}", file=sys.stderr)
        return 1
    if not arguments.install:
        print(f"Java {java.version} in {java.home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
