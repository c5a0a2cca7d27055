"""Snapshots in steps: the same bytes and the same entries under any change between the steps."""

import random
from array import array
from collections.abc import Iterator

import pytest

from fifo.machine import invariants
from fifo.machine.limits import BLOCK_BITS, BLOCK_MESSAGES
from fifo.machine.snapshot import bodies, codec, format, snapshot_stream
from fifo.machine.snapshot.snapshot_layout import format_of, forms_of, plain
from fifo.machine.snapshot.snapshot_stream import Still
from fifo.machine.state.records import KINDS, SCALARS, State
from fifo.machine.types import TextPlace
from tests.machine.test_fuzz import Fuzz


@pytest.fixture(autouse=True)
def _tiny_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the steps and raise the weights, so that small states take many steps."""
    for module in (snapshot_stream, bodies):
        monkeypatch.setattr(module, "STEP_ITEMS", 8)
    monkeypatch.setattr(snapshot_stream, "HEAVY_ITEMS", 3)
    monkeypatch.setattr(snapshot_stream, "PIECE_BYTES", 200)


def fuzzed(seed: int, rounds: int) -> Fuzz:
    fuzz = Fuzz(seed)
    fuzz.bench.check = False
    fuzz.run(rounds)
    return fuzz


def whole(state: State) -> bytes:
    """The bytes of a state, made at once and in the obvious way."""
    form = format_of(state.version)
    scalars = [plain(getattr(state, name)) for name in SCALARS]
    tables = [
        [
            [
                plain(written(getattr(item, name)))
                for name, (written, _) in forms_of(form, kind).items()
            ]
            for item in getattr(state, table).values()
        ]
        for kind, table in KINDS.items()
    ]
    return codec.encode([format.MAGIC, form, scalars, tables])


def pointed_to(state: State) -> list[int]:
    """The entries that a state points to, message by message."""
    found = set()
    for queue in state.queues.values():
        for held in invariants._places(state, queue).values():
            for position in held:
                block = queue.blocks[position >> BLOCK_BITS]
                found.add(block._run(*_span(block, position & (BLOCK_MESSAGES - 1))).index)
        for record in queue.records.values():
            if record.dead_letter is not None:
                texts = record.dead_letter.texts
                found |= {text.index for text in texts if isinstance(text, TextPlace)}
    return sorted(found)


def _span(block: object, offset: int) -> tuple[int, int, int]:
    starts = list(block.starts)  # type: ignore[attr-defined]  # a Block
    return max(n for n, start in enumerate(starts) if start <= offset), offset, offset + 1


def joined(arrays: Iterator["array[int]"]) -> list[int]:
    return [index for each in arrays for index in each]


@pytest.mark.parametrize("seed", range(700, 706))
def test_the_steps_write_the_same_bytes_as_one_pass(seed: int) -> None:
    state = fuzzed(seed, 60).bench.machine.state
    pieces = list(format.chunks(state))
    assert len(pieces) > 5
    assert b"".join(pieces) == whole(state)
    assert joined(bodies.live(Still(state))) == pointed_to(state)


@pytest.mark.parametrize("seed", range(710, 718))
def test_changes_between_the_steps_are_not_in_the_snapshot(seed: int) -> None:
    fuzz = fuzzed(seed, 40)
    for _ in range(3):
        state = fuzz.bench.machine.state
        then, live_then = whole(state), pointed_to(state)
        frozen = fuzz.bench.machine.freeze()
        found: list[int] = []
        for count, each in enumerate(bodies.live(frozen)):
            found += each
            if count % 7 == 0:
                fuzz.run(1)
        data = b""
        for count, piece in enumerate(format.chunks(frozen)):
            data += piece
            if count % 7 == 0:
                fuzz.run(1)
        frozen.release()
        assert found == live_then
        assert data == then
        assert whole(state) != then


@pytest.mark.parametrize("seed", range(720, 724))
def test_a_state_comes_back_from_pieces_that_are_cut_anywhere(seed: int) -> None:
    state = fuzzed(seed, 60).bench.machine.state
    data, rng = whole(state), random.Random(seed)
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.choice((1, 30, 1000))))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    steps = format.restoring(iter(pieces))
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            restored: State = end.value
            break
    assert count > 5
    assert whole(restored) == data
    invariants.check(restored)


def test_a_view_that_is_kept_costs_each_item_one_copy() -> None:
    fuzz = fuzzed(730, 40)
    frozen = fuzz.bench.machine.freeze()
    queue = next(iter(fuzz.bench.machine.state.queues.values()))
    assert frozen.keep(queue) is frozen.keep(queue) is not queue
