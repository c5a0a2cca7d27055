"""Bugs of the order of keys and of their runs, for the hunt of `mutants`.

Owns those bugs, each as one place in the source of one function, and the runs that look for them.
"""

from __future__ import annotations

from fifo.machine.snapshot import snapshot_layout
from fifo.machine.state import ordering
from fifo.machine.state.tables import Table
from fifo.machine.verbs import durable
from tests.machine import test_ordering
from tests.machine.model import driving
from tests.machine.model.running import RunsGenerator
from tests.mutants.switch import Switch, edited, entry

BUGS: dict[str, Switch] = {
    "a freed key is reserved for no message": edited(
        ordering,
        "take_key",
        "queue.busy_keys[key] = position\n",
        "pass\n",
    ),
    "keys that are held stay held when the queue is set to skip": edited(
        ordering,
        "skip",
        "finished(step, queue, position)",
        "pass",
    ),
    "a run goes on behind what came back of it": edited(
        ordering, "_end_run", "key in queue.runners and", "False and"
    ),
    "a run goes on behind what is delayed of it": edited(
        ordering, "delay", "if queue.runners:", "if False:"
    ),
    "a run goes on with any consumer that asks for one": edited(
        ordering, "_follows", "queue.runners.get(key) != runner", "key not in queue.runners"
    ),
    "a run passes over what waits for its key": edited(
        ordering, "_follows", "waiting is None or waiting.first() > position", "True"
    ),
    "a key is free when the first of its run is settled": edited(
        ordering, "_leaves_others", "if not others:\n        del", "if others:\n        del"
    ),
    "one of a run that is settled stays out": edited(
        ordering, "_leaves_others", "others.discard(position)", "pass"
    ),
    "what comes back does not wait for the others of its run": edited(
        ordering, "came_back", "if _leaves_others(queue, key, position):", "if False:"
    ),
    "a freed key keeps its runner": edited(ordering, "finished", "queue.runners.take(key)", "pass"),
    "a reserve leaves what waits for its runs where it is": edited(
        ordering, "call_for", "queue.runners.get(key) == runner", "False"
    ),
    "a run ends where others had waited for its key": edited(
        ordering, "_call", "if key in queue.waiting:", "if False:"
    ),
    "a cluster of version 1 has runs": edited(
        durable, "reserve", "step.state.version < KEY_RUNS", "False"
    ),
    "runs of keys are not in the snapshot": entry(
        snapshot_layout.FORMS["queue"],
        "runs",
        (lambda _: Table(), snapshot_layout.FORMS["queue"]["runs"][1]),
    ),
    "who may have more of a key is not in the snapshot": entry(
        snapshot_layout.FORMS["queue"],
        "runners",
        (lambda _: Table(), snapshot_layout.FORMS["queue"]["runners"][1]),
    ),
}

DIRECTED = {
    "a run passes over what waits for its key": (
        test_ordering.test_a_run_does_not_pass_what_a_step_had_no_time_to_call,
    ),
}
"""Scenarios for what random runs hardly meet."""

STEPS = 80


def beside_the_model(seed: int) -> str | None:
    """Run a seed with a bug: the difference, if any."""
    try:
        _, error = driving.run(seed, STEPS, kind=RunsGenerator)
    except (LookupError, TypeError, ValueError) as crash:  # apply never raises
        return repr(crash)
    return None if error is None else str(error)
