"""The table of versions: each room writes and reads what `fifo/words/versions.py` says."""

from __future__ import annotations

from fifo.machine import Machine
from fifo.machine.contract import VERSION
from fifo.machine.snapshot import format as snapshot
from fifo.wire import handshake as client
from fifo.words import versions
from fifo.words.versions import CAN, SILENT, VERSIONS
from node.broker import entry
from node.journal import records
from node.peers import frames


def test_each_room_reads_and_writes_what_the_table_says() -> None:
    found = {
        "peer": (frames.PROTOCOL_OLDEST, frames.PROTOCOL_NEWEST),
        "entry": (entry.FORMAT, entry.FORMAT),
        "machine": (versions.FIRST, VERSION),
        "snapshot": (snapshot.OLDEST, snapshot.FORMAT),
        "journal": (min(records.FORMATS_READ), max(records.FORMATS_READ)),
        "client": (client.VERSION_MIN, client.VERSION_MAX),
    }
    assert found == CAN
    assert entry.MACHINE_VERSION == VERSION == versions.NEWEST


def test_this_program_can_run_in_every_version_and_0_1_0_in_the_first_alone() -> None:
    assert [one.number for one in VERSIONS] == list(range(1, versions.NEWEST + 1))
    for one in VERSIONS:
        assert versions.can(CAN, one)
        assert versions.can(SILENT, one) == (one.number == versions.FIRST)
        assert one.uses["machine"] == one.number
        assert versions.version(one.number) is one
        assert one.number == versions.FIRST or one.turns_on


def test_a_part_that_another_member_does_not_name_is_one_that_it_cannot_speak() -> None:
    unnamed = {part: bounds for part, bounds in CAN.items() if part != "journal"}
    assert not versions.can(unnamed, VERSIONS[0])


def test_the_newest_version_that_all_members_know_is_taken() -> None:
    assert versions.newest_common([CAN, CAN]) is VERSIONS[-1]
    assert versions.newest_common([CAN, SILENT]) is VERSIONS[0]
    assert versions.newest_common([CAN, {}]) is VERSIONS[0]


def test_a_state_begins_with_the_first_version() -> None:
    """A member that replays a log from its beginning must do what those did that wrote it."""
    assert Machine().version == versions.FIRST
