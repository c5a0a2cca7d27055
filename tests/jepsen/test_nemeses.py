"""Nemeses of files have the effect that their names say."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from node.journal.errors import JournalDamaged
from node.journal.io.storage import OsStorage
from tests.jepsen.checkers.sometimes import sometimes
from tests.jepsen.history import Event
from tests.jepsen.images import TAIL_BYTES, copy_of, forget_tail, set_back
from tests.jepsen.nemeses import flip_amid, overwrite
from tests.support.journals import ONE_SEGMENT, fill, open_journal


@pytest.mark.slow
def test_damage_amid_a_journal_is_never_taken_for_a_torn_write(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    journal = open_journal(OsStorage(whole), limits=ONE_SEGMENT)
    for _ in range(5):
        fill(journal, 20)
        journal.log.sync()
    journal.close()
    for seed in range(60):
        hurt = tmp_path / str(seed)
        shutil.copytree(whole, hurt)
        what = flip_amid(hurt, random.Random(seed))
        with pytest.raises(JournalDamaged):
            open_journal(OsStorage(hurt), limits=ONE_SEGMENT)
        again = open_journal(OsStorage(hurt), limits=ONE_SEGMENT, recover="20261122T043238Z")
        assert again.recovering, what
        again.close()


@pytest.mark.slow
def test_a_tail_that_was_never_there_is_a_torn_write_and_entries_are_missing(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    journal = open_journal(OsStorage(data), limits=ONE_SEGMENT)
    for _ in range(40):
        fill(journal, 5)
        journal.log.sync()
    last = journal.log.last_index
    journal.close()
    forgotten = forget_tail(data, random.Random(1))
    assert forgotten >= TAIL_BYTES
    again = open_journal(OsStorage(data), limits=ONE_SEGMENT)
    assert 0 < again.log.last_index < last
    again.close()


def test_damage_is_done_to_a_file_and_never_to_a_folder_beside_it(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "lines").write_text("kept")
    for seed in range(8):
        (tmp_path / "synced").write_text("whole")
        assert "synced" in overwrite(tmp_path, random.Random(seed))
    assert (tmp_path / "audit" / "lines").read_text() == "kept"


def test_an_image_that_is_put_back_keeps_the_lock_file_by_which_a_copy_is_known(
    tmp_path: Path,
) -> None:
    data, image = tmp_path / "data", tmp_path / "image"
    data.mkdir()
    for name in ("lock", "synced"):
        (data / name).write_text("before")
    copy_of(data, image)
    lock = (data / "lock").stat().st_ino
    (data / "synced").write_text("after")
    (data / "later").write_text("after")
    set_back(data, image)
    assert sorted(path.name for path in data.iterdir()) == ["lock", "synced"]
    assert (data / "synced").read_text() == "before"
    assert (data / "lock").stat().st_ino == lock


def test_a_damaged_journal_that_came_back_is_counted() -> None:
    values = (
        ("corrupted", {"node": "n2", "what": "zero at 7", "refused": False}),
        ("corrupted", {"node": "n2", "what": "flip at 9", "refused": True}),
        ("recovered", {"node": "n2", "aside": ["synced.lost-20261122T043238Z"]}),
    )
    events: list[Event] = [
        {"type": "ok", "f": f, "value": value, "process": "nemesis", "time": 1.0 + i, "index": i}
        for i, (f, value) in enumerate(values)
    ]
    assert sometimes(events) == {
        "damage cut off": 1,
        "damaged journal refused": 1,
        "lost journal got back": 1,
    }
