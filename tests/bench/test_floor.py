"""The floor of a machine: processes that pass frames on, and the table of their times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from bench.floor.__main__ import LOADS, WRITERS
from bench.floor.roles import ANSWER, FRAME, FRAME_BYTES, Counting, Disk, Leader
from bench.processes import environment


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.writes.append(data)


class Kept:
    """A disk that counts what it was given."""

    frames = 0

    def keep(self, frame: bytes) -> None:
        """Count it."""
        self.frames += 1


def connection(came: list[Counting]) -> tuple[Counting, Written]:
    made, written = Counting(FRAME_BYTES, came.append), Written()
    made.connection_made(written)  # type: ignore[arg-type]  # a transport of the test
    return made, written


def test_frames_cut_anywhere_are_counted_when_they_are_whole() -> None:
    came: list[Counting] = []
    made, _ = connection(came)
    made.data_received(FRAME[:-1])
    assert not came
    made.data_received(b"x" + FRAME + FRAME[:1])
    assert len(came) == 2


def test_a_leader_answers_in_order_at_the_first_follower_that_has_each_frame() -> None:
    disk = Kept()
    leader = Leader(cast("Disk", disk))
    (one, to_one), (two, to_two), (client, answers) = (connection([]) for _ in range(3))
    leader.add(one)
    leader.add(two)
    leader.take(client)
    leader.take(client)
    assert (to_one.writes, to_two.writes, disk.frames) == ([FRAME] * 2, [FRAME] * 2, 2)
    for follower, answered in ((one, 1), (two, 1), (two, 2), (one, 2)):
        leader.kept(follower)
        assert answers.writes == [ANSWER] * answered


def test_a_disk_begins_anew_where_its_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.floor.roles.DISK_BYTES", 4 * FRAME_BYTES)
    disk = Disk(tmp_path / "file")
    for _ in range(9):
        disk.keep(FRAME)
    assert (tmp_path / "file").stat().st_size == 4 * FRAME_BYTES


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_row_is_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.floor"),
            *("--runs", "1", "--seconds", "0.1", "--dir", str(tmp_path), "--json"),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert set(rows) == {*WRITERS, *(row.name for row in LOADS)}
    assert all(one["p50_ms"] or one["cpu_us"] for (one,) in rows.values())
    assert not list(tmp_path.iterdir())
