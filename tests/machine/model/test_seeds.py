"""Seeded runs beside the model, and every snapshot of them restored and continued.

Quicker per step than the Hypothesis test, which shrinks; the two share the generator.
"""

from random import Random

import pytest

from fifo.machine import Machine, commands
from fifo.machine.spec import queue_spec
from fifo.words.options import Option
from fifo.words.queue_options import QUEUE_OPTIONS
from fifo.words.settlement import Verb
from tests.machine.model import driving
from tests.machine.model.comparing import Pair
from tests.machine.model.generating import Chooser, Generator, samples
from tests.machine.model.profiles import is_thorough
from tests.machine.model.verbs import Letter, Post
from tests.support.machine import sixteen

pytestmark = pytest.mark.slow


RUNS = 1_000 if is_thorough() else 120
STEPS = 150 if is_thorough() else 80
GROUP = 20
SNAPSHOT_RUNS = 100 if is_thorough() else 10
SNAPSHOT_STEPS = 60


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, RUNS, GROUP))
def test_the_machine_does_what_the_model_does(first: int) -> None:
    for seed in range(first, first + GROUP):
        pair, error = driving.run(seed, STEPS)
        if error is not None:
            raise AssertionError(driving.report(seed, pair, error))


@pytest.mark.parametrize("seed", range(SNAPSHOT_RUNS))
def test_stopping_at_any_index_changes_nothing(seed: int) -> None:
    pair, error = driving.run(seed, SNAPSHOT_STEPS, restore_percent=0)
    assert error is None, error
    goes_on_from_any_index(pair)


def goes_on_from_any_index(pair: Pair) -> None:
    """Restore every snapshot of a run, and go on from there."""
    straight = Machine()
    snapshots, outcomes = [straight.snapshot()], []
    for meta, batch in pair.log:
        outcomes.append(straight.apply_batch(meta, batch))
        snapshots.append(straight.snapshot())
    for index, data in enumerate(snapshots):
        stopped = Machine.restore(data)
        assert stopped.snapshot() == data, f"restored at {index}: another snapshot"
        for later, (meta, batch) in enumerate(pair.log[index:], index):
            outcome = stopped.apply_batch(meta, batch)
            assert outcome == outcomes[later], f"stopped at {index}: entry {later + 1} differs"
        assert stopped.snapshot() == snapshots[-1], f"stopped at {index}: another end"


def test_every_option_of_a_queue_is_drawn() -> None:
    """The comparison proves nothing about an option that no run ever sets."""
    generator = Generator(Pair(), Chooser(driving.SeededDraw(Random(1))))
    drawn = {option for _ in range(200) for option in generator.spec_of("q1")}
    assert drawn == {option.wire_name for option in QUEUE_OPTIONS}


@pytest.mark.parametrize("option", QUEUE_OPTIONS, ids=lambda option: option.wire_name)
def test_the_samples_of_an_option_are_valid(option: Option) -> None:
    """Also for an option with weights of its own: the next one will have none."""
    assert samples(option)
    together = {"dead_letter": "dead", "lock_ms": 1_000, "max_lock_ms": 300_000}
    for value in samples(option):
        queue_spec({**together, option.wire_name: value})


def test_a_redrive_that_begins_in_the_entry_in_which_messages_died_is_about_them() -> None:
    pair = Pair()
    pair.apply(0, commands.Declare("q", {"dead_letter": "dead"}))
    pair.apply(0, commands.Attach(sixteen("s"), 0, sixteen("i"), bytes(16), "u", "host:1"))
    letters = [Letter(1, b"a", ttl_ms=500), Letter(2, b"b", priority=9, ttl_ms=500)]
    pair.apply(0, Post(1, 0, "q", 0, letters))
    # In which order they die is open, and the model learns it when the redrive has begun.
    pair.apply(5_000, commands.Tick(), commands.Redrive("dead"))
    found, until = pair.machine.redrive_candidates("dead", 10)
    positions = tuple(position for position, _ in found)
    pair.apply(5_000, commands.RedriveStep("dead", 0, until, positions))
    assert [len(pair.world.in_queue(name)) for name in ("dead", "q")] == [0, 2]


def test_graces_of_one_session_end_in_the_order_of_their_times() -> None:
    """Seeds 10115 and 20574 of an earlier generator: one tick, and the second consumer's came
    first."""
    pair = Pair()
    pair.apply(0, commands.Declare("late", {"disconnect_grace_ms": 1_000}))
    pair.apply(0, commands.Declare("soon", {"disconnect_grace_ms": 0}))
    pair.apply(0, commands.Attach(sixteen("s"), 0, sixteen("i"), bytes(16), "u", "host:1"))
    for queue in ("late", "soon"):
        pair.apply(0, commands.Subscribe(1, "t", queue, {"prefetch": 1}))
        pair.apply(0, Post(1, 0, queue, 0, [Letter(1, b"a")]))
    pair.apply(1_000, commands.Disconnect(1, 1, 0))
    pair.apply(2_000, commands.Tick())
    found = pair.machine.state.sessions[1].notices
    assert [notice.consumer for notice in found.values()] == [2, 1]


def test_a_message_that_its_releaser_avoids_expires_with_the_next_tick() -> None:
    pair = Pair()
    pair.apply(0, commands.Declare("q", {"ttl_ms": 1_000}))
    pair.apply(0, commands.Attach(sixteen("s"), 0, sixteen("i"), bytes(16), "u", "host:1"))
    pair.apply(0, Post(1, 0, "q", 0, [Letter(1, b"a"), Letter(2, b"b")]))
    pair.apply(0, commands.Get(1, "q"))
    pair.apply(250, commands.Settle(1, 1, int(Verb.RELEASE), ((1, 1),)))
    pair.apply(5_000, commands.Get(1, "q"))
    assert [len(pair.world.in_queue("q")), len(pair.delivered)] == [1, 1]
    pair.apply(5_000, commands.Tick())
    assert not pair.world.in_queue("q")
