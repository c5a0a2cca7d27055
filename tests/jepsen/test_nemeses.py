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
from tests.jepsen.nemeses import flip_amid
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
