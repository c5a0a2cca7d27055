"""The benchmark of the queue machine times what it says it does."""

from pathlib import Path

import pytest

from bench import machine_pictures, machine_steps
from bench.machine import MachineFigure
from bench.machine_cycle import Cycle
from tests.test_pictures import PICTURE_BYTES_MAX

pytestmark = pytest.mark.slow


def _counts(cycle: Cycle) -> tuple[int, int, int]:
    queue = cycle.machine.state.queues[1]
    return queue.ready, queue.locked, queue.counters["acked"]


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize("batch", [1, 50])
def test_a_cycle_stores_hands_out_and_acks_its_batch(batch: int, *, rich: bool) -> None:
    cycle = Cycle(batch, rich=rich)
    once = cycle.work()
    for _ in range(3):
        once()
    assert _counts(cycle) == (0, 0, 3 * batch)


def test_a_cycle_works_beside_ready_and_locked_messages() -> None:
    cycle = Cycle(50, ready=1_000, locked=500)
    assert _counts(cycle) == (1_000, 500, 0)
    cycle.work()()
    assert cycle.machine.state.queues[1].counters["acked"] == 50


def test_a_lone_pair_takes_few_calls() -> None:
    found = machine_steps.count()
    assert all(one.steps and one.calls for one in found.values()), "a part was not seen"
    calls = sum(one.calls for one in found.values())
    assert calls <= 70, "a publish of one message and its ack take more calls than they did"


def test_every_curve_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="an extra that a plain setup has not")
    curves = ("ready", "locked", "expiring", "memory", "longest", "held")
    figures = [
        MachineFigure(f"{curve} {at}", "ns", 2.0, 1.0, 3.0, 5.0, curve, at)
        for curve in curves
        for at in (0, 1_000)
    ]
    written = machine_pictures.draw(figures, tmp_path / "pictures")
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == sorted(f"machine_{curve}.svg" for curve in curves)
    assert sorted(path.name for path in written) == names
    again = machine_pictures.draw(figures, tmp_path / "again")
    for first, second in zip(written, again, strict=True):
        assert first.read_bytes() == second.read_bytes(), "the same figures give another file"
        text = first.read_text()
        assert "prefers-color-scheme" in text
        assert "currentColor" in text
        assert len(text) < PICTURE_BYTES_MAX
