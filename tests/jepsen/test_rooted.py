"""Nemeses that need rights do to a machine what their names say."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.jepsen import rooted, starved
from tests.jepsen.cluster import Cluster, until
from tests.jepsen.starved import Group, interface

needs_disks = pytest.mark.skipif(
    rooted.why_not() is not None, reason=rooted.why_not() or "disks can be made here"
)
needs_groups = pytest.mark.skipif(
    starved.why_not() is not None, reason=starved.why_not() or "groups can be made here"
)
pytestmark = [pytest.mark.process, pytest.mark.slow]

HUNGRY = "import sys; sys.stdin.read(1); found = bytearray(16 << 20); print(len(found), flush=True)"


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[rooted.Disks, dict[str, Path]]]:
    cluster = SimpleNamespace(folder=tmp_path, data={"n1": tmp_path / "n1"}, disks=None)
    made = rooted.Disks(cast("Cluster", cluster))
    with made:
        yield made, cluster.data


@needs_disks
@pytest.mark.parametrize("left", rooted.LEFT_BYTES)
def test_a_disk_is_filled_up_to_what_is_to_be_left(disks: Any, left: int) -> None:
    _, data = disks
    room = data["n1"].parent
    rooted._fill(room / "ballast", left)
    with (room / "own").open("wb", buffering=0) as own:
        if left:
            os.posix_fallocate(own.fileno(), 0, left // 2)
        with pytest.raises(OSError, match="No space left") as refused:
            os.posix_fallocate(own.fileno(), 0, left + (1 << 20))
    assert refused.value.errno == errno.ENOSPC


@needs_disks
def test_a_copy_of_a_disk_has_the_inodes_of_the_original_and_lives_on_its_own(disks: Any) -> None:
    made, data = disks
    data["n1"].mkdir()
    (data["n1"] / "lock").write_text("of n1")
    copy = made.copy("n1", "n1c")
    (data["n1"] / "lock").write_text("later")
    assert (copy / "lock").read_text() == "of n1"
    assert (copy / "lock").stat().st_ino == (data["n1"] / "lock").stat().st_ino
    made.remove("n1c")
    assert not copy.parent.exists()


def hungry() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", HUNGRY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


@needs_groups
async def test_the_kernel_kills_what_asks_for_more_than_its_group_may_have() -> None:
    kind = interface()
    assert kind is not None
    process, group = hungry(), Group(kind, "hungry", 1 << 20)
    group.take(process.pid)
    process.communicate(b"x", timeout=20.0)
    assert process.returncode == -signal.SIGKILL
    group.release()
    assert await until(group.removed, starved.REMOVED_S)


@needs_groups
async def test_a_process_that_is_released_is_bounded_no_more() -> None:
    kind = interface()
    assert kind is not None
    process, group = hungry(), Group(kind, "released", 8 << 20)
    group.take(process.pid)
    assert not group.removed()
    group.release()
    assert await until(group.removed, starved.REMOVED_S)
    said, _ = process.communicate(b"x", timeout=20.0)
    assert (process.returncode, said) == (0, b"16777216\n")
