"""Snapshots: canonical, complete, and refused where they are not what they should be."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fifo.machine import Machine
from fifo.machine.snapshot import codec, format, snapshot_layout
from fifo.machine.snapshot.format import SnapshotError
from fifo.machine.state.records import QUEUE_DERIVED, VERSION, Consumer, Producer, Queue, Session
from fifo.words import versions
from tests.machine import pinned
from tests.machine.test_fuzz import Fuzz


@pytest.mark.parametrize("kind", [Session, Consumer, Producer, Queue])
def test_every_field_of_a_record_is_written_or_built_again(kind: type) -> None:
    name = kind.kind  # type: ignore[attr-defined]
    written = set(snapshot_layout.FORMS[name])
    derived = set(QUEUE_DERIVED if kind is Queue else ())
    assert written | derived | {"generation"} == set(kind.__slots__)  # type: ignore[attr-defined]
    assert not written & derived


def test_a_cut_or_damaged_snapshot_is_refused() -> None:
    fuzz = Fuzz(21)
    fuzz.run(20)
    data = fuzz.bench.machine.snapshot()
    for end in range(0, len(data), max(len(data) // 50, 1)):
        with pytest.raises(SnapshotError):
            Machine.restore(data[:end])
    with pytest.raises(SnapshotError):
        Machine.restore(data + b"\x00")


@pytest.mark.parametrize("value", [None, 7, [], ["fifo machine"], ["other", 1, [], []]])
def test_bytes_that_are_no_snapshot_are_refused(value: object) -> None:
    with pytest.raises(SnapshotError):
        Machine.restore(codec.encode(value))


@pytest.mark.parametrize("version", range(versions.FIRST, versions.NEWEST + 1))
def test_the_format_of_a_snapshot_is_pinned(version: int, request: pytest.FixtureRequest) -> None:
    """A change of the bytes is a new `FORMAT`, and a new fixture; `--rewrite` writes it."""
    number = versions.version(version).uses["snapshot"]
    path = Path(__file__).parent / "snapshots" / f"format-{number}.bin"
    data = pinned.build(version).machine.snapshot()
    if request.config.getoption("rewrite", default=False):
        path.write_bytes(data)
    assert path.read_bytes() == data
    assert Machine.restore(data).snapshot() == data


def test_a_state_of_format_13_goes_on_with_version_2() -> None:
    """As an unreleased program wrote it, and as one that is raised while it runs."""
    machine = Machine.restore((Path(__file__).parent / "snapshots" / "format-13.bin").read_bytes())
    machine.state.version = versions.KEY_RUNS
    again = machine.snapshot()
    assert again[:20] != pinned.build().machine.snapshot()[:20]
    assert Machine.restore(again).snapshot() == again


def test_a_state_of_a_later_machine_version_is_refused() -> None:
    machine = Machine()
    machine.state.version = VERSION + 1
    with pytest.raises(SnapshotError, match="newer program"):
        Machine.restore(machine.snapshot())


@pytest.mark.parametrize("other", [1, 99])
def test_another_format_is_refused_by_its_number(other: int) -> None:
    with pytest.raises(SnapshotError, match=f"format {other}"):
        Machine.restore(codec.encode([format.MAGIC, other, [], []]))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=5),
)


@pytest.mark.slow
@given(PLAIN)
def test_plain_values_round_trip(value: object) -> None:
    assert codec.decode(codec.encode(value)) == value


@given(st.binary(max_size=40))
def test_random_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        codec.decode(data)
    except codec.CodecError:
        return


@pytest.mark.parametrize("value", [1.5, {1: 2}, {1}, object()])
def test_a_value_without_a_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        codec.encode(value)
