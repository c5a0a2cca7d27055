"""The format on disk is what `docs/storage.md` says, and stays what it is."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from node.journal import records
from node.journal.io.storage import OpenFiles
from node.journal.records import JournalIdentity
from node.journal.snapshots.compacted_file import CompactedFileWriter, compacted_name
from node.journal.snapshots.file import snapshot_name
from node.testing.disk import SimStorage
from tests.node.raft import stranger
from tests.support.journals import CLUSTER, NODE, SMALL, busy_script, fill, open_journal, state_of
from tests.support.snapshot_script import LIVE, Moment, script
from tests.support.snapshots import clean_up, state_at, take

PAGE = Path(__file__).parents[3] / "docs" / "storage.md"


def files_of(storage: SimStorage) -> dict[str, bytes]:
    return {name: storage.content(name) for name in storage.listdir()}


def test_an_independent_reader_reads_the_journal() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=SMALL)
    for step in busy_script(journal):
        step()
    journal.log.set_term(8, "beta")
    journal.log.note_commit(13)
    expected = state_of(journal)
    journal.close()
    log = stranger.read_journal(files_of(storage), CLUSTER, NODE)
    assert (tuple(log.entries), log.term, log.vote) == expected
    assert log.commit == 13
    assert log.synced == sum(
        len(content) for name, content in files_of(storage).items() if name != "synced"
    )


@pytest.mark.parametrize("index", [8, 16, 30, 60, 64, 70, 74])
def test_an_independent_reader_reads_snapshots_and_their_live_entries(index: int) -> None:
    """Before, while and after segments go, entries move to compacted files, and an installation."""
    storage = SimStorage()
    journal = open_journal(storage, limits=SMALL)
    moment = Moment()
    for action, change in script():
        if moment.snapshot == index and change(moment) != moment:
            break
        action(journal)
        moment = change(moment)
    journal.close()
    log = stranger.read_journal(files_of(storage), CLUSTER, NODE)
    assert tuple(log.entries) == moment.entries[log.first - 1 :]
    assert (log.term, log.vote) == (moment.term, moment.vote)
    assert (log.index, log.state) == (index, state_at(index))
    assert log.bodies == {live: moment.entries[live - 1] for live in LIVE[index]}


def test_a_journal_of_format_1_is_opened_and_goes_on_in_format_2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = SimStorage()
    monkeypatch.setattr(records, "FORMAT", 1)
    journal = open_journal(storage, limits=SMALL)
    for step in busy_script(journal):
        step()
    expected = state_of(journal)
    journal.close()
    monkeypatch.undo()
    journal = open_journal(storage, limits=SMALL)
    assert state_of(journal) == expected
    live = [2, 4]
    for _ in range(3):
        fill(journal, 6, size=90, term=4)
        journal.log.sync()
        take(journal, live)
        clean_up(journal)
    assert journal.log.first_index > 16
    journal.close()
    formats = [storage.content(name)[8] for name in storage.listdir() if name.endswith("segment")]
    assert set(formats) == {2}
    journal = open_journal(storage, limits=SMALL)
    assert [journal.log.read(index) for index in live] == [expected[0][i - 1][0] for i in live]


def example() -> SimStorage:
    """The journal that the page prints."""
    storage = SimStorage()
    journal = open_journal(storage, limits=replace(SMALL, preallocation_bytes=35))
    journal.log.add(b"\x01", 1, 0)
    journal.log.set_term(2, "beta")
    journal.log.add(b"\x10hello", 2, 2)
    journal.log.sync()
    storage.crash()
    return storage


SNAPSHOT = snapshot_name(2, 2)
KEPT = compacted_name(1)


def example_with_snapshot() -> SimStorage:
    """The same journal with a snapshot of its second entry, and that entry in a compacted file."""
    storage = example()
    journal = open_journal(storage)
    writer = journal.begin_snapshot(2, 2, array("Q", [2]))
    writer.write(b"ready")
    writer.finish()
    identity = JournalIdentity(storage.folder, CLUSTER, NODE)
    kept = CompactedFileWriter(storage, identity, 1, "the example")
    kept.add(journal.log.read(2), 2, 2)
    kept.publish(OpenFiles(storage, 2))
    return storage


def test_a_snapshot_says_who_the_members_were_where_they_have_changed() -> None:
    storage = example()
    journal = open_journal(storage)
    writer = journal.begin_snapshot(2, 2, array("Q", [2]), members=b"\x11of today")
    writer.write(b"ready")
    writer.finish()
    storage.crash()
    content = storage.content(SNAPSHOT)
    first = content.index(records.MAGIC)
    assert content[first + 2] == 12
    journal = open_journal(storage)
    assert journal.snapshot is not None
    assert journal.snapshot.members == b"\x11of today"
    before = example_with_snapshot()
    before.crash()
    journal = open_journal(before)
    assert journal.snapshot is not None
    assert journal.snapshot.members == b""


def test_the_commands_that_the_owner_wants_at_hand_are_those_of_the_log_as_it_is() -> None:
    storage = SimStorage()
    journal = open_journal(storage)
    journal.log.set_term(1, None)
    commands = (b"\x01", b"\x11one", b"\x10two", b"\x11three", b"\x11four")
    for index, command in enumerate(commands, 1):
        journal.log.add(command, index, 1)
    journal.log.truncate(4)
    journal.log.add(b"\x10five", 5, 1)
    journal.log.sync()
    storage.crash()
    assert open_journal(storage).noted == {2: b"\x11one", 4: b"\x11three"}


def printed(content: bytes) -> str:
    lines = []
    for offset in range(0, len(content), 16):
        row = content[offset : offset + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{offset:04x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["0000000001-00000000000000000001.segment", "synced"])
def test_the_example_on_the_page_equals_the_written_bytes(name: str) -> None:
    """If this fails, the format has changed: raise its number and keep reading the old one."""
    assert printed(example().content(name)) in PAGE.read_text()


@pytest.mark.parametrize("name", [SNAPSHOT, KEPT])
def test_the_examples_of_a_snapshot_and_a_compacted_file_equal_the_written_bytes(name: str) -> None:
    assert printed(example_with_snapshot().content(name)) in PAGE.read_text()


def test_the_example_on_the_page_is_still_read() -> None:
    log = stranger.read_journal(files_of(example()), CLUSTER, NODE)
    assert log.entries == [(b"\x01", 1, 0), (b"\x10hello", 2, 2)]
    assert (log.term, log.vote) == (2, "beta")
    log = stranger.read_journal(files_of(example_with_snapshot()), CLUSTER, NODE)
    assert (log.index, log.state, log.bodies) == (2, b"ready", {2: (b"\x10hello", 2, 2)})
