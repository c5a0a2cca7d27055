"""Makes the fixtures of a release by its own wheels: `python -m tests.upgrade.maker 0.1.0`.

Owns the environment in which `written.py` runs: the release's wheels, and the examples of its own
tests at its tag. Run it once for each release; what it wrote is never written again.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.upgrade import releases
from tools import release, set_up

FIXTURES = Path(__file__).parent / "fixtures"


def make(version: str, folder: Path) -> None:
    """Write the fixtures of a release into `folder`."""
    commit = release.find(version).commit
    with tempfile.TemporaryDirectory() as made:
        wheels = releases.unpacked(version, Path(made, "wheels"))
        archive = subprocess.run(
            ["git", "archive", commit, "tests"], cwd=set_up.ROOT, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(made, filter="data")
        subprocess.run(
            releases.python(str(Path(__file__).with_name("written.py")), str(folder)),
            env={**os.environ, **releases.environment(wheels, Path(made))},
            cwd=made,
            check=True,
        )


def main(version: str) -> int:
    """Write them where the tests look for them; refuse to write over any."""
    folder = FIXTURES / version
    if folder.exists():
        print(f"{folder} is there: what a release wrote does not change", file=sys.stderr)
        return 1
    folder.mkdir(parents=True)
    make(version, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
