"""The format on disk is what `docs/storage.md` says, and stays what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.raft import stranger
from tests.support.journals import CLUSTER, NODE, SMALL, busy_script, open_journal, state_of
from tests.support.simdisk import SimStorage

PAGE = Path(__file__).parents[3] / "docs" / "storage.md"


def files_of(storage: SimStorage) -> dict[str, bytes]:
    return {name: storage.content(name) for name in storage.listdir()}


def test_a_strangers_reader_reads_what_the_journal_wrote() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=SMALL)
    for step in busy_script(journal):
        step()
    journal.setCurrentTerm(8, "beta")
    journal.setRaftCommitIndex(13)
    expected = state_of(journal)
    journal.close()
    log = stranger.read_journal(files_of(storage), CLUSTER, NODE)
    assert (tuple(log.entries), log.term, log.vote) == expected
    assert log.commit == 13
    assert log.synced == sum(
        len(content) for name, content in files_of(storage).items() if name != "synced"
    )


def example() -> SimStorage:
    """The journal that the page prints."""
    storage = SimStorage()
    journal = open_journal(storage)
    journal.add(b"\x01", 1, 0)
    journal.setCurrentTerm(2, "beta")
    journal.add(b"\x10hello", 2, 2)
    journal.sync()
    storage.crash()
    return storage


def printed(content: bytes) -> str:
    lines = []
    for offset in range(0, len(content), 16):
        row = content[offset : offset + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{offset:04x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["0000000001-00000000000000000001.segment", "synced"])
def test_the_example_on_the_page_is_what_is_written(name: str) -> None:
    """If this fails, the format has changed: raise its number and keep reading the old one."""
    assert printed(example().content(name)) in PAGE.read_text()


def test_the_example_on_the_page_is_still_read() -> None:
    log = stranger.read_journal(files_of(example()), CLUSTER, NODE)
    assert log.entries == [(b"\x01", 1, 0), (b"\x10hello", 2, 2)]
    assert (log.term, log.vote) == (2, "beta")
