"""The README fits two screens, and its blocks run as they stand on a real cluster.

Owns how a block is run: in a folder of its own, with free ports in place of the default ones. Must
not know what the commands do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.cli.local import free_base_port
from tests.support.pytest_ids import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
TWO_SCREENS = 90
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def block(language: str, holding: str) -> str:
    """The block of a language that holds a text."""
    found = [text for name, text in _BLOCK.findall(README) if name == language and holding in text]
    assert len(found) == 1, f"{len(found)} blocks with {holding!r}"
    return str(found[0])


def test_the_readme_fits_two_screens_and_says_how_to_install() -> None:
    assert README.count("\n") <= TWO_SCREENS
    installing = block("sh", "pip install")
    assert "pip install fifo-quorum " in installing
    assert "pip install 'fifo-quorum[server]'" in installing
    assert "make setup" in block("sh", "make quick")


@pytest.mark.cluster
@pytest.mark.process
def test_the_blocks_of_the_readme_run_as_they_stand(tmp_path: Path) -> None:
    base = free_base_port()
    shell = block("sh", "fifo cluster start").replace("--detach", f"--detach --base-port {base}")
    program = re.sub(
        r":71(\d\d)\b", lambda port: f":{base + int(port[1])}", block("python", "asyncio")
    )
    bin_first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    around = {key: value for key, value in os.environ.items() if not key.startswith("FIFO_")}

    def run(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=around | {"PATH": bin_first},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    try:
        run("sh", "-e", "-c", shell)
        printed = run(sys.executable, "-c", program)
        assert re.findall(r"^b'(\w+)' 1 ", printed, re.MULTILINE) == ["one", "two"]
    finally:
        run("fifo", "cluster", "stop")
