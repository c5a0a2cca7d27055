"""Records can be read while they are written, each whole line once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.demo.records import (
    CONFIRMED,
    DELIVERED,
    Chunk,
    Follower,
    Recorder,
    chunks,
    deliveries,
)
from tests.bench.histories import delivery

if TYPE_CHECKING:
    from pathlib import Path


def test_a_record_round_trips(tmp_path: Path) -> None:
    """Both kinds, from two writers."""
    chunk, first, second = Chunk(1, 500, 17, 21), delivery(1, "acked"), delivery(2, "nacked")
    with (
        Recorder(tmp_path, CONFIRMED, "p") as publisher,
        Recorder(tmp_path, DELIVERED, "a") as a,
        Recorder(tmp_path, DELIVERED, "b") as b,
    ):
        publisher.write(chunk)
        a.write(first)
        b.write(second)
    assert list(chunks(Follower(tmp_path, CONFIRMED))) == [chunk]
    assert list(deliveries(Follower(tmp_path, DELIVERED))) == [first, second]


def test_a_follower_gives_each_line_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    """The writer's buffer may end in the middle of a line."""
    path = tmp_path / "confirmed-p.csv"
    follower = Follower(tmp_path, CONFIRMED)
    assert list(chunks(follower)) == []
    path.write_text("1,2,3,4\n5,6,7")
    assert list(chunks(follower)) == [Chunk(1, 2, 3, 4)]
    assert list(chunks(follower)) == []
    path.write_text("1,2,3,4\n5,6,7,89\n")
    assert list(chunks(follower)) == [Chunk(5, 6, 7, 89)]


def test_a_record_is_not_written_over(tmp_path: Path) -> None:
    """Two writers of one name would hide each other's losses."""
    with Recorder(tmp_path, CONFIRMED, "p"), pytest.raises(FileExistsError):
        Recorder(tmp_path, CONFIRMED, "p")
