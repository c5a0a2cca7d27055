"""The journal's answer to files that are not what was written.

The rule: each change is noticed, or cut off as a torn tail, or harmless; a wrong entry, a wrong
term or a wrong vote never comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from node.journal import records
from node.journal.errors import JournalDamaged, JournalForeign
from node.journal.segments import MARK_NAME, segment_name
from node.testing.disk import SimStorage
from tests.support.journals import (
    CLUSTER,
    NO_ROOM,
    NODE,
    ONE_SEGMENT,
    SMALL,
    State,
    busy_script,
    command,
    decode_segment_header,
    fill,
    journal_with,
    open_journal,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.journal.limits import JournalLimits

pytestmark = pytest.mark.slow


FIRST_SEGMENT = segment_name(1, 1)


class Written:
    """A journal's files after the busy script, and every state it went through."""

    def __init__(self, limits: JournalLimits = SMALL) -> None:
        self.limits = limits
        storage = SimStorage()
        journal = open_journal(storage, limits=limits)
        self.states: list[State] = [state_of(journal)]
        synced = [0]
        for step in busy_script(journal):
            syncs = storage.syncs
            step()
            self.states.append(state_of(journal))
            if storage.syncs > syncs:
                synced.append(len(self.states) - 1)
        self.without_last_group = self.states[synced[-2] : -1]
        journal.close()
        self.files = {name: storage.content(name) for name in storage.listdir()}
        self.final = self.states[-1]

    @property
    def segment_names(self) -> list[str]:
        return [name for name in self.files if name != MARK_NAME]

    def disk(self, **changes: bytes | None) -> SimStorage:
        return self.disk_of({**self.files, **changes})

    @staticmethod
    def disk_of(files: dict[str, bytes | None]) -> SimStorage:
        storage = SimStorage()
        for name, content in files.items():
            if content is not None:
                storage.replace(name, content)
        return storage

    def open_changed(self, *, marked: bool, **changes: bytes | None) -> State | None:
        """The state after opening the changed files; None if they are refused."""
        storage = self.disk(**changes)
        if not marked:
            storage.remove(MARK_NAME)
        try:
            journal = open_journal(storage, limits=self.limits)
        except (JournalDamaged, JournalForeign):
            return None
        state = state_of(journal)
        # What was opened once can be opened again, and says the same.
        storage.crash()
        assert state_of(open_journal(storage, limits=self.limits)) == state
        return state


@pytest.fixture(scope="module")
def written() -> Written:
    return Written()


@pytest.fixture(scope="module")
def one_segment() -> Written:
    return Written(ONE_SEGMENT)


def flips(content: bytes) -> Iterator[tuple[int, bytes]]:
    for offset in range(len(content)):
        for mask in (0x01, 0x80, 0xFF):
            changed = bytearray(content)
            changed[offset] ^= mask
            yield offset, bytes(changed)


def last_group_offset(content: bytes, base: int = 0) -> int:
    """Where the last group of a segment begins, found without the code under test's reader."""
    _, offset, _ = decode_segment_header(content)
    last = offset
    while offset < len(content):
        kind, size = content[offset + 2], int.from_bytes(content[offset + 4 : offset + 8], "little")
        if kind == records.GROUP:
            last = offset
        offset += records.RECORD_BYTES + size
    return last


def test_the_busy_script_produces_the_cases_that_the_sweeps_need(written: Written) -> None:
    assert len(written.segment_names) >= 4
    assert MARK_NAME in written.files
    entries, term, _ = written.final
    assert len(entries) > 10
    assert term == 3


def test_b07_a_flipped_bit_is_never_accepted(written: Written) -> None:
    """After an orderly end the mark covers everything: each flip is refused."""
    for name in written.segment_names:
        for offset, changed in flips(written.files[name]):
            assert written.open_changed(marked=True, **{name: changed}) is None, (name, offset)


def test_b07_a_flipped_bit_in_the_mark_loses_nothing(written: Written) -> None:
    for _, changed in flips(written.files[MARK_NAME]):
        assert written.open_changed(marked=True, **{MARK_NAME: changed}) == written.final


def test_b07_without_the_mark_only_the_last_group_can_pass_for_a_torn_tail(
    one_segment: Written,
) -> None:
    content = one_segment.files[FIRST_SEGMENT]
    last_group = last_group_offset(content)
    cut = 0
    for offset, changed in flips(content):
        state = one_segment.open_changed(marked=False, **{FIRST_SEGMENT: changed})
        if offset < last_group:
            assert state is None, offset
        elif state is not None:
            assert state in one_segment.without_last_group, offset
            assert state != one_segment.final, offset
            cut += 1
    assert cut > 0, "the sweep has to meet torn tails too"


def test_b07_a_file_cut_at_any_length_is_refused_or_loses_only_the_last_group(
    one_segment: Written,
) -> None:
    content = one_segment.files[FIRST_SEGMENT]
    for length in range(len(content)):
        changes: dict[str, bytes | None] = {FIRST_SEGMENT: content[:length]}
        assert one_segment.open_changed(marked=True, **changes) is None, length
        state = one_segment.open_changed(marked=False, **changes)
        assert state is None or state in one_segment.states, length


def test_b07_an_older_segment_cut_at_any_length_is_refused(written: Written) -> None:
    for name in written.segment_names[:-1]:
        content = written.files[name]
        for length in range(len(content)):
            for marked in (True, False):
                changed = {name: content[:length]}
                assert written.open_changed(marked=marked, **changed) is None, (name, length)


@pytest.mark.parametrize("marked", [True, False])
def test_b07_a_zeroed_stretch_in_the_middle_is_refused(one_segment: Written, marked: bool) -> None:
    content = one_segment.files[FIRST_SEGMENT]
    last_group = last_group_offset(content)
    for offset in range(0, last_group - 64, 16):
        changed = content[:offset] + bytes(64) + content[offset + 64 :]
        assert changed != content
        assert one_segment.open_changed(marked=marked, **{FIRST_SEGMENT: changed}) is None


def test_b07_a_zeroed_tail_of_many_groups_is_refused_because_of_the_mark(
    one_segment: Written,
) -> None:
    """The groups' own positions are gone with the tail; the mark lies in another file."""
    content = one_segment.files[FIRST_SEGMENT]
    for offset in range(0, len(content), 16):
        changed = content[:offset] + bytes(len(content) - offset)
        if changed != content:
            assert one_segment.open_changed(marked=True, **{FIRST_SEGMENT: changed}) is None


def test_a_torn_tail_is_cut_and_the_journal_goes_on(one_segment: Written) -> None:
    content = one_segment.files[FIRST_SEGMENT]
    garbage = b"\xf1\xf0" + bytes(range(200))
    storage = one_segment.disk(**{FIRST_SEGMENT: content + garbage})
    journal = open_journal(storage, limits=ONE_SEGMENT)
    assert journal.cut_bytes == len(garbage)
    assert state_of(journal) == one_segment.final
    assert storage.content(FIRST_SEGMENT) == content
    journal.log.add(b"after", journal.log.last_index + 1, 3)
    expected = state_of(journal)
    journal.close()
    again = open_journal(storage, limits=ONE_SEGMENT)
    assert state_of(again) == expected
    assert again.cut_bytes == 0


def test_a_tail_behind_a_valid_record_is_not_torn() -> None:
    """An invalid record with a valid one behind it in the same, last group: damage."""
    storage, _ = journal_with(3, limits=ONE_SEGMENT)
    storage.crash()
    storage.remove(MARK_NAME)
    content = bytearray(storage.content(FIRST_SEGMENT))
    damaged_at = content.index(command(2)) - records.RECORD_BYTES
    following = content.index(command(3)) - records.RECORD_BYTES
    content[damaged_at + records.RECORD_BYTES] ^= 1
    storage.replace(FIRST_SEGMENT, bytes(content))
    with pytest.raises(JournalDamaged, match=f"a valid record follows at byte {following}") as seen:
        open_journal(storage, limits=ONE_SEGMENT)
    assert (seen.value.file, seen.value.offset) == (FIRST_SEGMENT, damaged_at)
    assert storage.content(FIRST_SEGMENT) == bytes(content), "a refusal changes nothing"


def test_damage_names_file_offset_and_what_to_do(one_segment: Written) -> None:
    content = bytearray(one_segment.files[FIRST_SEGMENT])
    damaged_at = content.index(command(3)) - records.RECORD_BYTES
    content[damaged_at + records.RECORD_BYTES + 5] ^= 1
    with pytest.raises(JournalDamaged) as seen:
        open_journal(one_segment.disk(**{FIRST_SEGMENT: bytes(content)}), limits=ONE_SEGMENT)
    text = str(seen.value)
    assert f"{FIRST_SEGMENT} at byte {damaged_at}:" in text
    assert "checksum" in text
    assert "do not empty the folder" in text
    assert "docs/storage.md" in text
    assert "\n" not in text


def test_a_record_inside_a_message_is_never_taken_for_one_of_the_log() -> None:
    """Someone queues the bytes of a journal; then the power goes during the write of that."""
    storage, journal = journal_with(3, limits=NO_ROOM)
    stolen = storage.content(FIRST_SEGMENT)
    journal.log.add(b"\x10" + stolen * 20, 4, 1)
    journal.log.sync()
    storage.crash()
    storage.remove(MARK_NAME)
    storage.replace(FIRST_SEGMENT, storage.content(FIRST_SEGMENT)[:-1])
    journal = open_journal(storage, limits=NO_ROOM)
    assert journal.cut_bytes > 20 * len(stolen)
    assert [entry[0] for entry in journal.log[:]] == [command(1), command(2), command(3)]


def test_bytes_of_another_place_are_refused_though_their_own_checksum_is_right() -> None:
    """A disk that returns an older or a neighbouring block: the position gives it away."""
    storage, journal = journal_with(6, limits=ONE_SEGMENT, synced=False)
    journal.close()
    content = storage.content(FIRST_SEGMENT)
    size = records.RECORD_BYTES + len(command(1))
    second = content.index(command(2)) - records.RECORD_BYTES
    swapped = (
        content[:second]
        + content[second + size : second + 2 * size]
        + content[second : second + size]
        + content[second + 2 * size :]
    )
    storage.replace(FIRST_SEGMENT, swapped)
    with pytest.raises(JournalDamaged, match="belongs to position"):
        open_journal(storage, limits=ONE_SEGMENT)


def test_b08_a_vote_that_cannot_be_read_is_damage_even_as_the_last_record() -> None:
    storage, journal = journal_with(2, limits=NO_ROOM, synced=False)
    journal.log.set_term(7, "beta")
    content = storage.content(FIRST_SEGMENT)
    vote_at = content.rindex(b"beta") - records.RECORD_BYTES
    mark = storage.content(MARK_NAME)
    for _, changed in flips(content[vote_at:]):
        disk = SimStorage()
        disk.replace(FIRST_SEGMENT, content[:vote_at] + changed)
        disk.replace(MARK_NAME, mark)
        with pytest.raises(JournalDamaged):
            open_journal(disk, limits=NO_ROOM)
    disk.replace(FIRST_SEGMENT, content[:vote_at])
    with pytest.raises(JournalDamaged, match="the log ends here"):
        open_journal(disk, limits=NO_ROOM)


# --- whole files ---


def test_a_missing_segment_is_refused_whichever_it_is(written: Written) -> None:
    for name in written.segment_names:
        assert written.open_changed(marked=True, **{name: None}) is None
    for name in written.segment_names[:-1]:
        assert written.open_changed(marked=False, **{name: None}) is None


def test_a_folder_with_a_mark_and_no_segment_is_not_a_new_folder(written: Written) -> None:
    nothing = dict.fromkeys(written.segment_names)
    with pytest.raises(JournalDamaged, match="all segments are gone"):
        open_journal(written.disk(**nothing))


def test_a_renamed_or_exchanged_segment_is_refused(written: Written) -> None:
    first, second, *_ = written.segment_names
    exchanged = {first: written.files[second], second: written.files[first]}
    assert written.open_changed(marked=True, **exchanged) is None
    sequence, index = 99, 77
    renamed = {second: None, segment_name(sequence, index): written.files[second]}
    assert written.open_changed(marked=False, **renamed) is None


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        pytest.param(NO_ROOM, "the log ends here, but position", id="without room"),
        pytest.param(
            ONE_SEGMENT, r"no record begins here, below position \d+ that is", id="with its room"
        ),
    ],
)
def test_an_older_copy_of_the_last_segment_is_refused(limits: JournalLimits, words: str) -> None:
    storage, journal = journal_with(3, limits=limits)
    copy = storage.content(FIRST_SEGMENT)
    fill(journal, 3)
    journal.close()
    storage.replace(FIRST_SEGMENT, copy)
    with pytest.raises(JournalDamaged, match=words):
        open_journal(storage, limits=limits)


def test_a_folder_of_another_cluster_or_node_is_refused_and_named(written: Written) -> None:
    with pytest.raises(JournalForeign, match=f"belongs to cluster {CLUSTER.hex()}"):
        open_journal(written.disk(), cluster_id=bytes(16))
    with pytest.raises(JournalForeign, match="belongs to node 'alpha', this node is 'beta'"):
        open_journal(written.disk(), node="beta")


def test_a_folder_with_other_things_in_it_is_refused_and_named() -> None:
    storage = SimStorage("precious")
    storage.replace("thesis.tex", b"chapter 1")
    with pytest.raises(JournalForeign, match=r"precious holds 'thesis\.tex' and no journal"):
        open_journal(storage)
    assert storage.listdir() == ["thesis.tex"]


def test_a_newer_format_is_refused_as_such(written: Written) -> None:
    content = written.files[FIRST_SEGMENT]
    _, size, _ = decode_segment_header(content)
    newer = bytearray(content[:size])
    newer[8] = 3
    newer[-4:] = crc32c(bytes(newer[:-4])).to_bytes(4, "little")
    changed = {FIRST_SEGMENT: bytes(newer) + content[size:]}
    with pytest.raises(JournalForeign, match="format 3, this version reads format 2"):
        open_journal(written.disk(**changed))


def test_a_record_of_an_unknown_kind_is_refused_not_skipped() -> None:
    storage, journal = journal_with(1, limits=ONE_SEGMENT, synced=False)
    journal.close()
    content = storage.content(FIRST_SEGMENT)
    _, _, seed = decode_segment_header(content)
    unknown = records.encode_record(9, len(content), 0, 0, b"", seed)
    storage.replace(FIRST_SEGMENT, content + unknown)
    with pytest.raises(JournalDamaged, match="kind 9, which this version does not know"):
        open_journal(storage, limits=ONE_SEGMENT)


@pytest.mark.parametrize(
    ("kind", "term", "index", "payload", "problem"),
    [
        (records.ENTRY, 1, 4, b"", "entry 4 of term 1 after entry 2 of term 1"),
        (records.ENTRY, 0, 3, b"", "entry 3 of term 0 after entry 2 of term 1"),
        (records.TRUNCATE, 1, 1, b"", "truncates from entry 1"),
        (records.TRUNCATE, 1, 3, b"", "truncates from entry 3"),
        (records.HARD_STATE, 4, 0, b"", "term 4 after term 5"),
        (records.GROUP, 0, 0, b"", "cannot be the synced position"),
        (records.GROUP, 0, 0, b"\xff" * 8, "cannot be the synced position"),
    ],
)
def test_a_record_that_no_correct_node_writes_is_refused(
    kind: int, term: int, index: int, payload: bytes, problem: str
) -> None:
    storage, journal = journal_with(2, limits=ONE_SEGMENT, synced=False)
    journal.log.set_term(5, None)
    journal.close()
    content = storage.content(FIRST_SEGMENT)
    _, _, seed = decode_segment_header(content)
    record = records.encode_record(kind, len(content), term, index, payload, seed) + payload
    storage.replace(FIRST_SEGMENT, content + record)
    with pytest.raises(JournalDamaged, match=problem):
        open_journal(storage, limits=ONE_SEGMENT)


def test_the_remains_of_an_interrupted_segment_creation_are_removed(written: Written) -> None:
    leftover = segment_name(99, 99) + ".tmp"
    storage = written.disk(**{leftover: b"half a header"})
    assert state_of(open_journal(storage)) == written.final
    assert leftover not in storage.listdir()


def test_an_entry_that_rots_while_the_node_runs_is_never_returned() -> None:
    storage, journal = journal_with(3, limits=ONE_SEGMENT)
    content = storage.content(FIRST_SEGMENT)
    at = content.index(command(2))
    inode_content = content[:at] + b"?" + content[at + 1 :]
    storage.rot(FIRST_SEGMENT, inode_content)
    assert journal.log.read(1) == command(1)
    with pytest.raises(JournalDamaged, match="entry 2 is not what was written"):
        journal.log.read(2)


def test_the_node_name_may_be_any_text() -> None:
    storage = SimStorage()
    open_journal(storage, node="nœud №1").close()
    open_journal(storage, node="nœud №1").close()
    with pytest.raises(JournalForeign, match="nœud №1"):
        open_journal(storage, node=NODE)


def test_damage_says_why_it_is_no_torn_tail(written: Written, one_segment: Written) -> None:
    first = written.segment_names[0]
    cut = written.files[first][:-1] + b"?"
    with pytest.raises(JournalDamaged, match="and later segments follow"):
        open_journal(written.disk(**{first: cut}))
    cut = one_segment.files[FIRST_SEGMENT][:-1] + b"?"
    with pytest.raises(JournalDamaged, match=r"below position \d+ that is known to be synced"):
        open_journal(one_segment.disk(**{FIRST_SEGMENT: cut}), limits=ONE_SEGMENT)


def test_records_of_another_journal_at_the_same_position_are_refused() -> None:
    """Same positions, same indexes, checksums right where they come from: the seed differs."""
    contents = []
    for node in ("alpha", "gamma"):
        storage = SimStorage()
        journal = open_journal(storage, limits=ONE_SEGMENT, node=node)
        fill(journal, 3)
        journal.log.sync()
        fill(journal, 3)
        journal.close()
        contents.append(storage.content(FIRST_SEGMENT))
    ours, theirs = contents
    at = last_group_offset(ours)
    assert len(ours) == len(theirs)
    assert ours[at:] != theirs[at:]
    storage = SimStorage()
    storage.replace(FIRST_SEGMENT, ours[:at] + theirs[at:])
    journal = open_journal(storage, limits=ONE_SEGMENT)
    assert journal.log.last_index == 3, "nothing of the other journal is believed"


def test_records_found_at_the_opening_are_marked_as_synced() -> None:
    """A kill leaves an old mark; the next opening makes the tail durable and says so."""
    storage, _ = journal_with(3, limits=NO_ROOM)
    storage.crash()
    open_journal(storage, limits=NO_ROOM)
    storage.crash()
    content = storage.content(FIRST_SEGMENT)
    storage.replace(FIRST_SEGMENT, content[:-1] + b"?")
    with pytest.raises(JournalDamaged, match="known to be synced"):
        open_journal(storage, limits=NO_ROOM)


def test_a_timer_tick_marks_the_synced_position() -> None:
    storage, journal = journal_with(3, limits=NO_ROOM)
    journal.log.each_second()
    storage.crash()
    storage.replace(FIRST_SEGMENT, storage.content(FIRST_SEGMENT)[:-1])
    with pytest.raises(JournalDamaged, match="known to be synced"):
        open_journal(storage, limits=NO_ROOM)
