"""Pages of programs beside programs: our blocks are tests and pass, the others' are Python.

A block that begins with a comment of one of THEIRS is of another library, which is not installed
here; one that begins with the name of a file is that file, and the tutorial's run. Owns how blocks
are run: by pytest, in a folder of their own. Must not know what they check.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.passing import passing, printed
from tests.support.pages import blocks
from tests.support.shared import SharedCluster
from tests.worker.test_command import Command, started

__all__ = ["started"]

GUIDES = ("tracing", "tutorial", "from-celery", "from-rabbitmq", "from-sqs")
THEIRS = ("# Celery", "# pika", "# aio-pika", "# boto3")

_FILE = re.compile(r"# (\w+\.py)\n")
_TEST = re.compile(r"^(?:async )?def test_", re.MULTILINE)


def blocks_of(name: str) -> list[str]:
    """Our blocks of a page, but for files."""
    return [one for one in blocks(name) if not one.startswith(THEIRS) and not _FILE.match(one)]


def files_of(name: str) -> dict[str, str]:
    """The files of a page, by their names."""
    found = [(_FILE.match(one), one) for one in blocks(name)]
    return {match[1]: one for match, one in found if match is not None}


@pytest.mark.process
def test_our_blocks_are_tests_and_pass(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    tests = 0
    for name in GUIDES:
        for number, block in enumerate(blocks_of(name)):
            assert _TEST.search(block), f"docs/{name}.md: block {number} tests nothing"
            tests += len(_TEST.findall(block))
            file = f"test_{name.replace('-', '_')}_{number}.py"
            (tmp_path / file).write_text(block)
    output = passing(tmp_path)
    assert f"{tests} passed" in output


@pytest.mark.parametrize("name", GUIDES)
def test_the_blocks_of_others_are_python(name: str) -> None:
    for block in blocks(name):
        compile(block, f"docs/{name}.md", "exec")


@pytest.mark.cluster
@pytest.mark.process
def test_the_tutorial_runs_as_it_stands(
    shared_cluster: SharedCluster, started: list[Command], tmp_path: Path
) -> None:
    for name, text in files_of("tutorial").items():
        (tmp_path / name).write_text(text.replace('"orders"', '"tutorial"'))  # others have orders
    started.append(worker := Command(tmp_path, "shop:app", "-c", "16", url=shared_cluster.url))
    worker.until("ready: 1 task, queues tutorial, 16 at once")
    sent = printed(tmp_path, "send.py", shared_cluster.url)
    assert sent == "order 3 is on its way to Grace\n"
