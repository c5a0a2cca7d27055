"""The one list of all mutants of the project, by area, with those who hunt them.

Owns the list, no bug: each area keeps its own beside its tests. A new area adds one function here
and its name to `MUTANTS`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path

from node.raft.node import RaftNode
from tests.jepsen import mutant_plans as real
from tests.jepsen import rooted
from tests.machine import story
from tests.machine.model import driving
from tests.machine.model import mutants as machine
from tests.mutants.hunting import Catch, Hunt, Mutant, scenario, seeds
from tests.mutants.switch import replaced
from tests.node.raft import (
    test_elections,
    test_hazards,
    test_recover,
    test_slow_disk,
    test_snapshot_hazards,
    test_switches,
    test_transfer,
)
from tests.sim import mutants as simulator
from tests.sim import test_slow_reads
from tests.support import raft_schedule
from tests.support.raft_switches import SWITCHES

GOLDEN = sorted((Path(machine.__file__).parents[1] / "golden").glob("*.txt"))
MODEL_RUNS = 120
"""As many as the quick profile has: what is found later would not be found in CI."""
MODEL_STEPS = 80
RAFT_SCHEDULES = 60
"""Most that can be found by chance are found by the first; the rest are no matter of ten more."""


def _stories() -> Catch | None:
    """The golden stories that come to something else; the first two are named."""
    found = []
    for path in GOLDEN:
        told = path.read_text()
        try:
            came: str | None = story.run(told)
        except Exception:  # a story that breaks is one that notices
            came = None
        if came != told:
            found.append(f"`{path.stem}`")
    if not found:
        return None
    more = f" and {len(found) - 2} more" if len(found) > 2 else ""
    number = f"{len(found)} stor{'y' if len(found) == 1 else 'ies'}"
    return Catch("story " + ", ".join(found[:2]) + more, number)


def _beside_the_model(seed: int) -> str | None:
    try:
        _, error = driving.run(seed, MODEL_STEPS)
    except (LookupError, TypeError, ValueError) as crash:  # apply never raises
        return repr(crash)
    return None if error is None else str(error)


def _named(work: Callable[..., object]) -> str:
    """The id of a test that can be pasted; the bare name of a scenario."""
    if not work.__name__.startswith("test_"):
        return work.__name__
    return f"{work.__module__.replace('.', '/')}.py::{work.__name__}"


def _of_the_machine() -> list[Mutant]:
    hunts: tuple[Hunt, ...] = (
        _stories,
        seeds(_beside_the_model, "model", MODEL_RUNS, "runs"),
    )
    found = []
    for name, switch in machine.MUTANTS.items():
        directed = [scenario(work, _named(work)) for work in machine.DIRECTED.get(name, ())]
        found.append(Mutant("machine", name, switch, (*directed, *hunts)))
    return found


def _of_the_cluster() -> list[Mutant]:
    directed = test_slow_reads.a_slow_read_holds_up_nobody_else
    on_the_loop = Mutant(
        "cluster",
        "old bodies are read on the loop",
        simulator.reads_on_the_loop,
        (scenario(directed, directed.__name__),),
    )
    return [on_the_loop] + [
        Mutant(
            "cluster",
            bug.name,
            bug.patched,
            (seeds(partial(simulator.noticed, bug), "simulator", bug.limit),),
        )
        for bug in simulator.MUTANTS
    ]


def _of_raft() -> list[Mutant]:
    tables = (
        test_hazards.SCENARIOS,
        test_snapshot_hazards.SCENARIOS,
        test_elections.RULES,
        test_transfer.RULES,
        test_slow_disk.RULES,
        test_recover.RULES,
    )
    with_losses = {core for _, core in test_recover.RULES}
    hunted: dict[type, list[Hunt]] = {}
    for work, core in chain.from_iterable(tables):
        hunted.setdefault(core, []).append(scenario(work, work.__name__))
    below = [
        Mutant("raft", words, switch, (scenario(work, work.__name__),))
        for work, name in test_switches.SCENARIOS
        for words, switch in (SWITCHES[name],)
    ]
    return below + [
        Mutant(
            "raft",
            (core.__doc__ or core.__name__).split("\n")[0].rstrip("."),
            replaced(RaftNode, "core_class", core),
            (
                *hunts,
                seeds(
                    partial(_on_a_schedule, losses=core in with_losses),
                    "raft schedules",
                    RAFT_SCHEDULES,
                    "schedules",
                ),
            ),
        )
        for core, hunts in hunted.items()
    ]


def _on_a_schedule(seed: int, *, losses: bool) -> str | None:
    """What random faults alone come to; with `losses`, lost journals are among them."""
    try:
        raft_schedule.run_plan(raft_schedule.plan_of(seed, losses=losses))
    except Exception as error:  # whatever breaks: without the bug nothing does
        return repr(error)
    return None


def _of_processes() -> list[Mutant]:
    """Those that the fault suite puts into real nodes, which ask for them by themselves."""
    found = []
    for hunt in real.HUNTS:
        name = str(hunt.plan.mutant)
        unable = rooted.why_not() if hunt.needs_power else None
        seed = partial(_in_processes, hunt)
        caught = seeds(seed, "fault suite", hunt.limit)
        found.append(Mutant("processes", name.replace("_", " "), nullcontext, (caught,), unable))
    return found


def _in_processes(hunt: real.Hunt, seed: int) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        return " ".join(sorted(real.broken(hunt, seed + 1, Path(folder)))) or None


MUTANTS: tuple[Mutant, ...] = (
    *_of_the_machine(),
    *_of_the_cluster(),
    *_of_raft(),
    *_of_processes(),
)
