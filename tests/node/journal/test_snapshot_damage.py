"""The journal's answer to snapshots and compacted files that are not what was written.

The rule: each change is noticed at the start, or when the entry is read, or another copy stands
in, or it is harmless. A wrong state, a wrong entry, a body of another message never comes out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from node.journal.errors import JournalDamaged, JournalFailed, JournalForeign
from node.journal.records import SNAPSHOT_MAGIC, decode_header
from node.journal.snapshots.file import snapshot_name
from node.testing.disk import SimStorage
from tests.support.journals import command, fill, open_journal
from tests.support.snapshot_script import LIVE, Life, Moment, check_holds, script
from tests.support.snapshots import clean_up, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Damage = Callable[[bytes], Iterator[bytes]]

pytestmark = pytest.mark.slow


class Disk:
    """The files of the script after its snapshot at `index`, and what they hold."""

    def __init__(self, index: int, older: int | None) -> None:
        storage = SimStorage()
        journal = open_journal(storage)
        moment = Moment()
        for action, change in script():
            if moment.snapshot == index and change(moment) != moment:
                break
            action(journal)
            moment = change(moment)
        journal.close()
        self.files = {name: storage.content(name) for name in storage.listdir()}
        self.moment = moment
        self.older = older
        self.newest_name = snapshot_name(index, moment.entries[index - 1][2])

    def names(self, ending: str) -> list[str]:
        return [name for name in self.files if name.endswith(ending)]

    def changed(self, **changes: bytes | None) -> SimStorage:
        storage = SimStorage()
        for name, content in {**self.files, **changes}.items():
            if content is not None:
                storage.replace(name, content)
        return storage

    def outcome(self, **changes: bytes | None) -> str:
        """Outcome for the changed files: refused, seen (at a read), older, or same."""
        storage = self.changed(**changes)
        try:
            journal = open_journal(storage)
        except (JournalDamaged, JournalForeign):
            return "refused"
        expected = [self.moment, replace(self.moment, snapshot=self.older or 0)]
        try:
            found = check_holds(journal, expected)
        except JournalDamaged:
            with pytest.raises(JournalFailed):
                journal.log.sync()
            return "seen"
        if found == self.moment:
            return "same, warned" if journal.warnings else "same"
        assert len(journal.warnings) == 1
        return "older"


@pytest.fixture(scope="module")
def first() -> Disk:
    """A single snapshot, and the whole log."""
    return Disk(8, None)


@pytest.fixture(scope="module")
def two() -> Disk:
    """Two snapshots, compacted files, and segments of which only some entries are live."""
    return Disk(30, 16)


@pytest.fixture(scope="module")
def installed() -> Disk:
    """A snapshot that came from another node, and nothing beside it."""
    return Disk(60, None)


@pytest.fixture(scope="module")
def last() -> Disk:
    """Two snapshots after an installation, whose compacted files were compacted."""
    return Disk(74, 70)


def flips(content: bytes) -> Iterator[bytes]:
    for offset in range(len(content)):
        changed = bytearray(content)
        changed[offset] ^= 1 << offset % 8
        yield bytes(changed)


def cuts(content: bytes) -> Iterator[bytes]:
    for length in range(len(content)):
        yield content[:length]
    yield content + b"\x00"


@pytest.mark.parametrize("damage", [flips, cuts])
@pytest.mark.parametrize("which", ["two", "last"])
def test_b10_the_older_snapshot_stands_in_for_a_damaged_newest_one(
    which: str, damage: Damage, request: pytest.FixtureRequest
) -> None:
    disk: Disk = request.getfixturevalue(which)
    for changed in damage(disk.files[disk.newest_name]):
        assert disk.outcome(**{disk.newest_name: changed}) == "older"


@pytest.mark.parametrize("damage", [flips, cuts])
@pytest.mark.parametrize("which", ["two", "last"])
def test_b10_a_damaged_older_snapshot_does_no_harm(
    which: str, damage: Damage, request: pytest.FixtureRequest
) -> None:
    disk: Disk = request.getfixturevalue(which)
    (older,) = set(disk.names(".snapshot")) - {disk.newest_name}
    for changed in damage(disk.files[older]):
        assert disk.outcome(**{older: changed}) == "same, warned"


@pytest.mark.parametrize("damage", [flips, cuts])
def test_b10_while_there_is_one_snapshot_the_log_stands_in_for_it(
    first: Disk, damage: Damage
) -> None:
    for changed in damage(first.files[first.newest_name]):
        assert first.outcome(**{first.newest_name: changed}) == "older"


@pytest.mark.parametrize("damage", [flips, cuts])
def test_b10_an_installed_snapshot_that_is_damaged_is_refused(
    installed: Disk, damage: Damage
) -> None:
    for changed in damage(installed.files[installed.newest_name]):
        assert installed.outcome(**{installed.newest_name: changed}) == "refused"


@pytest.mark.parametrize("damage", [flips, cuts])
@pytest.mark.parametrize("which", ["two", "installed", "last"])
def test_a_damaged_kept_file_never_gives_another_entry(
    which: str, damage: Damage, request: pytest.FixtureRequest
) -> None:
    disk: Disk = request.getfixturevalue(which)
    assert disk.names(".kept")
    seen = set()
    for name in disk.names(".kept"):
        for changed in damage(disk.files[name]):
            seen.add(disk.outcome(**{name: changed}))
    # EntryLocations that a later snapshot has taken over are not read any more.
    assert "refused" in seen
    assert seen <= {"refused", "seen", "same"}
    assert damage is cuts or "seen" in seen


def test_a_damaged_segment_below_the_log_never_gives_another_entry() -> None:
    """Such a segment is not read at the start; its header and live entries have checksums."""
    storage = SimStorage()
    journal = open_journal(storage)
    for _ in range(8):
        fill(journal, 3, size=60)
        journal.log.sync()
    live = [1, 2, 3, 5, 20]
    take(journal, live, index=20)
    take(journal, live, index=22)
    clean_up(journal)
    journal.close()
    names = [name for name in storage.listdir() if name.endswith(".segment")]
    assert len(names) < 5
    outcomes = set()
    files = {name: storage.content(name) for name in storage.listdir()}
    for changed in (*flips(files[names[0]]), *cuts(files[names[0]])):
        disk = SimStorage()
        for name, content in {**files, names[0]: changed}.items():
            disk.replace(name, content)
        outcome = "refused"
        try:
            journal = open_journal(disk)
            outcome = "seen"
            assert [journal.log.read(index) for index in live] == [command(i, 60) for i in live]
            outcome = "harmless"
        except (JournalDamaged, JournalForeign):
            pass
        outcomes.add(outcome)
    assert outcomes == {"refused", "seen", "harmless"}


def test_b10_a_log_that_begins_later_without_a_snapshot_is_refused(two: Disk) -> None:
    nothing = dict.fromkeys(two.names(".snapshot"))
    with pytest.raises(JournalDamaged, match="no whole snapshot stands for it"):
        open_journal(two.changed(**nothing))


def test_a_missing_file_that_is_needed_is_refused_whichever_it_is(two: Disk, last: Disk) -> None:
    for disk in (two, last):
        for name in [*disk.names(".kept"), *disk.names(".segment")]:
            assert disk.outcome(**{name: None}) == "refused", name


def test_a_snapshot_of_another_log_of_this_node_is_refused(two: Disk) -> None:
    """Whole in itself, but the log has something else where it says its last entry is."""
    other = SimStorage()
    journal = open_journal(other)
    fill(journal, 17, size=50)
    fill(journal, 20, size=50, term=3)
    journal.log.sync()
    take(journal, LIVE[30], index=30)
    content = other.content(two.newest_name)
    with pytest.raises(JournalDamaged, match="the log has another entry 30"):
        open_journal(two.changed(**{two.newest_name: content}))


def test_a_snapshot_of_another_node_or_cluster_or_newer_format_is_refused(two: Disk) -> None:
    header, size, _ = decode_header(two.files[two.newest_name], SNAPSHOT_MAGIC)
    rest = two.files[two.newest_name][size:]
    for other, message in [
        (replace(header, node="gamma"), "belongs to node 'gamma'"),
        (replace(header, cluster_id=bytes(16)), "belongs to cluster 0000"),
    ]:
        with pytest.raises(JournalForeign, match=message):
            open_journal(two.changed(**{two.newest_name: other.encode() + rest}))
    newer = bytearray(header.encode())
    newer[8] = 3
    newer[-4:] = crc32c(bytes(newer[:-4])).to_bytes(4, "little")
    with pytest.raises(JournalForeign, match="format 3, this version reads format 2"):
        open_journal(two.changed(**{two.newest_name: bytes(newer) + rest}))


def test_damage_names_file_offset_and_what_to_do(two: Disk) -> None:
    name = two.names(".kept")[0]
    content = bytearray(two.files[name])
    content[-1] ^= 1
    with pytest.raises(JournalDamaged) as caught:
        open_journal(two.changed(**{name: bytes(content)}))
    assert caught.value.file == name
    assert caught.value.offset > 0
    assert "check the disk" in str(caught.value)


def test_a_life_without_faults_reads_everything_it_should() -> None:
    storage = SimStorage()
    life = Life(storage)
    journal = open_journal(storage)
    assert check_holds(journal, life.possible).snapshot == max(LIVE)
    assert journal.warnings == []
