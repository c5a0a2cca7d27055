"""When an entry goes out: at once with nothing on its way, else 2 ms, 1 MiB or a commit later."""

from __future__ import annotations

import pytest

from node.broker import entry, limits
from node.broker.batcher import Batch, Batcher

MIB = 1 << 20


def add(
    batcher: Batcher[int],
    plain: list[int],
    context: int,
    raw: bytes = b"",
    weight: int = 0,
    offsets: list[int] | None = None,
    *,
    patient: bool = False,
) -> None:
    """Gather a command, and note the offset that it is built for."""

    def build(at: int) -> list[int]:
        if offsets is not None:
            offsets.append(at)
        return plain

    batcher.add(build, context, raw, weight=weight, patient=patient)


def gathered(*raw_sizes: int) -> Batcher[int]:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    for number, size in enumerate(raw_sizes):
        add(batcher, [15, number], number, bytes(size))
    return batcher


def taken(batcher: Batcher[int]) -> Batch[int]:
    batch = batcher.take()
    assert batch is not None
    return batch


def test_with_nothing_on_its_way_a_command_goes_out_at_once() -> None:
    assert gathered(10).due(0.0, in_flight=0)


def test_a_batch_behind_an_entry_waits_two_milliseconds() -> None:
    batcher = gathered(10)
    assert not batcher.due(0.0019, in_flight=1)
    assert batcher.wait(0.0005, in_flight=1) == pytest.approx(0.0015)
    assert batcher.due(0.0021, in_flight=1)


def test_patient_commands_alone_wait_two_milliseconds_with_nothing_on_its_way() -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    add(batcher, [15], 0, patient=True)
    add(batcher, [15], 1, patient=True)
    assert not batcher.may_leave(0.0)
    assert not batcher.due(0.0019, in_flight=0)
    assert batcher.wait(0.0005, in_flight=1) == pytest.approx(0.0015)
    assert batcher.due(0.0021, in_flight=0)


def test_a_command_that_is_waited_for_takes_the_patient_ones_along() -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    add(batcher, [15], 0, patient=True)
    add(batcher, [15], 1)
    add(batcher, [15], 2, patient=True)
    assert batcher.may_leave(0.0)
    assert batcher.due(0.0, in_flight=0)
    assert taken(batcher).contexts == [0, 1, 2]
    assert not batcher.may_leave(0.0), "the next batch begins without a reason to hurry"


def behind_an_entry(size_bytes: int, *, with_raw: int, gathered: int) -> Batcher[int]:
    """A batcher whose last entry was answered at 1 ms, when so many commands had gathered."""
    batcher: Batcher[int] = Batcher(lambda: 0.0005)
    for number in range(gathered):
        add(batcher, [15], number, b"body")
    batcher.committed(size_bytes, with_raw, 0.002)
    return batcher


def test_a_batch_waits_for_as_many_as_the_last_entry_answered_and_left_behind() -> None:
    batcher = behind_an_entry(limits.COMPANY_BYTES_MIN + 1, with_raw=2, gathered=1)
    assert not batcher.due(0.001, in_flight=0)
    add(batcher, [15], 1, b"body")
    assert not batcher.due(0.001, in_flight=0)
    assert batcher.wait(0.0015, in_flight=0) == pytest.approx(0.0005)
    add(batcher, [15], 2, b"body")
    assert batcher.due(0.001, in_flight=0)
    assert batcher.wait(0.001, in_flight=0) == 0.0


def test_company_is_waited_for_until_an_instant() -> None:
    batcher = behind_an_entry(limits.COMPANY_BYTES_MIN + 1, with_raw=2, gathered=1)
    assert not batcher.due(0.0019, in_flight=0)
    assert batcher.due(0.002, in_flight=0)


def test_acks_alone_are_no_company() -> None:
    batcher = behind_an_entry(limits.COMPANY_BYTES_MIN + 1, with_raw=2, gathered=0)
    add(batcher, [15], 0, b"body")
    add(batcher, [15], 1, patient=True)
    assert not batcher.due(0.001, in_flight=0)


def test_what_may_wait_for_nothing_takes_those_along_that_wait_for_company() -> None:
    batcher = behind_an_entry(limits.COMPANY_BYTES_MIN + 1, with_raw=9, gathered=1)
    assert not batcher.due(0.001, in_flight=0)
    add(batcher, [15], 1)
    assert batcher.due(0.001, in_flight=0)
    assert batcher.wait(0.001, in_flight=0) == 0.0
    assert taken(batcher).contexts == [0, 1]


def test_behind_an_entry_of_acks_a_publish_leaves_at_once_and_acks_alone_do_not() -> None:
    batcher = behind_an_entry(limits.COMPANY_BYTES_MIN + 1, with_raw=0, gathered=0)
    add(batcher, [15], 0, patient=True)
    assert not batcher.due(0.001, in_flight=0)
    add(batcher, [15], 1, b"body")
    assert batcher.due(0.001, in_flight=0)


def test_behind_a_small_entry_no_company_is_waited_for() -> None:
    batcher = behind_an_entry(limits.COMPANY_BYTES_MIN + 1, with_raw=9, gathered=9)
    taken(batcher)
    batcher.committed(limits.COMPANY_BYTES_MIN, 9, 0.002)
    add(batcher, [15], 0, b"body")
    assert batcher.due(0.001, in_flight=0)


def test_a_program_that_is_alone_never_waits_for_company() -> None:
    batcher = behind_an_entry(limits.COMPANY_BYTES_MIN + 1, with_raw=1, gathered=0)
    add(batcher, [15], 0, b"body")
    assert batcher.due(0.001, in_flight=0)


def test_a_full_batch_of_patient_commands_leaves_at_once() -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    for number in range(limits.GATHER_COMMANDS_MAX + 1):
        add(batcher, [2], number, patient=True)
    assert batcher.due(0.0, in_flight=0)
    assert batcher.may_leave(0.0)


def test_nothing_gathered_is_never_due_and_waits_for_nothing() -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    assert not batcher.due(100.0, in_flight=0)
    assert batcher.wait(100.0, in_flight=0) is None
    assert batcher.take() is None


def test_a_mebibyte_leaves_behind_entries_under_way() -> None:
    batcher = gathered(MIB - 1000, 2000)
    assert batcher.due(0.0, in_flight=1)
    assert [len(taken(batcher).contexts) for _ in range(2)] == [1, 1]


def test_offsets_begin_anew_in_every_entry() -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    offsets: list[int] = []
    for number, size in enumerate((1000, 2000, MIB - 100, 50)):
        add(batcher, [15], number, bytes(size), offsets=offsets)
    assert offsets == [0, 1000, 0, MIB - 100]


def test_one_frame_of_the_largest_size_fits_into_an_entry() -> None:
    batcher = gathered(1000, MIB + MIB // 2)
    taken(batcher)
    batch = taken(batcher)
    assert sum(map(len, batch.parts(version=1, stamp_ms=1, wall_ms=2))) <= 2 * MIB


def test_the_size_of_an_entry_equals_the_count() -> None:
    batch = taken(gathered(10, 20, 30))
    assert sum(map(len, batch.parts(version=1, stamp_ms=1, wall_ms=2))) == batch.size_bytes


def test_commands_without_bodies_are_bounded_in_number() -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    for number in range(limits.GATHER_COMMANDS_MAX + 1):
        add(batcher, [2], number)
    assert len(taken(batcher).contexts) == limits.GATHER_COMMANDS_MAX
    assert taken(batcher).contexts == [limits.GATHER_COMMANDS_MAX]


@pytest.mark.parametrize("raw", [b"", b"x"])
def test_commands_that_are_heavy_together_come_in_entries_of_their_own(raw: bytes) -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    third = limits.GATHER_MICROSECONDS_MAX // 3
    for number, weight in enumerate([third] * 4 + [10 * third, 0]):
        add(batcher, [21], number, raw, weight)
    found = []
    while (batch := batcher.take()) is not None:
        found.append(batch.contexts)
    assert found == [[0, 1, 2], [3], [4], [5]]


def test_a_heavy_batch_leaves_behind_entries_under_way() -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)
    add(batcher, [21], 0, weight=limits.GATHER_MICROSECONDS_MAX - 1)
    assert not batcher.due(0.0, in_flight=1)
    add(batcher, [21], 1, weight=1)
    assert batcher.due(0.0, in_flight=1)
    assert taken(batcher).contexts == [0, 1]


def test_an_entry_round_trips() -> None:
    batch = taken(gathered(3, 2))
    payload = memoryview(b"".join(batch.parts(version=1, stamp_ms=77, wall_ms=88)))
    read = entry.unpack(payload)
    assert (read.stamp_ms, read.wall_ms) == (77, 88)
    assert read.commands == ((15, 0), (15, 1))
    assert read.area == bytes(5)
    assert entry.area_of(payload) == bytes(5)
    assert entry.stamp_of(payload) == 77


@pytest.mark.parametrize("cut", [0, 5, entry.HEADER_BYTES, entry.HEADER_BYTES + 3])
def test_a_cut_entry_is_refused(cut: int) -> None:
    packed = [entry.pack_command([2, "x" * 100])]
    payload = b"".join(entry.pack(packed, [], version=1, stamp_ms=1, wall_ms=1))
    with pytest.raises(entry.EntryUnreadable):
        entry.unpack(memoryview(payload[:cut]))


def test_an_entry_of_a_newer_format_names_the_remedy() -> None:
    payload = bytearray(b"".join(entry.pack([], [], version=1, stamp_ms=1, wall_ms=1)))
    payload[0] = entry.FORMAT + 1
    with pytest.raises(entry.EntryUnreadable, match="newer program"):
        entry.unpack(memoryview(payload))


def test_a_command_that_cannot_be_built_leaves_no_empty_batch() -> None:
    batcher: Batcher[int] = Batcher(lambda: 0.0)

    def build(at: int) -> list[int]:
        raise ValueError("not a command")

    with pytest.raises(ValueError, match="not a command"):
        batcher.add(build, 0, weight=0)
    assert not batcher.gathered_bytes
    assert not batcher.due(100.0, in_flight=0)
