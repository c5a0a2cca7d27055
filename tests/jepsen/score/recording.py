"""The good histories of the score: recorded once from real runs with faults, and kept.

Owns which runs they are of, their files, and `record`, which makes them anew. Two come from real
processes, which clients alone wrote down; three from the simulator, where the machine was seen. A
recording that breaks a rule is refused: it would be a bug of ours.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import tempfile
from pathlib import Path

from tests.jepsen import checkers
from tests.jepsen.history import Event, line_of
from tests.jepsen.run import Plan as RealPlan
from tests.jepsen.run import run as run_real
from tests.jepsen.score.tape import Good
from tests.sim.plan import Consuming, Fault, Plan, Verbs
from tests.sim.run import run

FOLDER = Path(__file__).parent / "recorded"

REAL = {
    "processes": RealPlan(
        "every", ("kill", "pause", "partition", "client_kill"), 3, seconds=5.0, calm_s=6.0
    ),
    "redriven": RealPlan(
        "redriven", ("client_kill", "client_pause"), 3, seconds=5.0, lasting="kill"
    ),
}
"""Real nodes and clients: all queues and verbs; dead letters that go back, and a sick minority."""

_FAULTS = (
    Fault(2.0, "kill_leader", "n1"), Fault(2.8, "restart", "n1"),
    Fault(4.0, "client_kill", "n1", "c1"), Fault(5.0, "isolate_leader", "n1", number=1),
    Fault(6.0, "client_break", "n1", "c2"), Fault(6.5, "heal", "n1"),
)  # fmt: skip
_SLOW = Consuming(prefetch=3, lock_s=1.0, workers=2, auto_renew=False, slow=0.5)
_QUICK = Consuming(prefetch=2, lock_s=1.0, workers=2, auto_renew=True, slow=0.05)

SIMULATED = {
    ordering: Plan(5, 3, counts, (_SLOW, _QUICK), 2, _FAULTS, ordering=ordering, verbs=verbs)
    for ordering, counts, verbs in (
        ("none", (40, 30), Verbs(getters=1, durables=1, numbered=6, ttl=True)),
        ("key", (20, 12), Verbs()),
        ("single_active", (20, 12), Verbs()),
    )
}
"""By the order of their queue."""


def goods() -> list[Good]:
    """The recorded histories."""
    real = [Good(name, _read(name)) for name in REAL]
    return [*real, *(Good("simulated", _read(name)) for name in SIMULATED)]


def _path(name: str) -> Path:
    return FOLDER / f"{name}.jsonl.gz"


def _read(name: str) -> list[Event]:
    with gzip.open(_path(name), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def record() -> None:
    """Carry the runs out, and keep what was seen. Raises AssertionError where a rule was broken."""
    found: dict[str, list[Event]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, real in REAL.items():
            result = asyncio.run(run_real(real, Path(folder) / name))
            assert result.good, result.text()
            found[name] = result.events
    found |= {name: run(plan).history.events for name, plan in SIMULATED.items()}
    FOLDER.mkdir(exist_ok=True)
    for name, events in found.items():
        checkers.check(events, where=f"{name}: ")
        text = "".join(line_of(event) + "\n" for event in events)
        _path(name).write_bytes(gzip.compress(text.encode(), mtime=0))
