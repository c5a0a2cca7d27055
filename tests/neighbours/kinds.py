"""All kinds of attack by name, one of them a random mix of the others.

Owns the index. Must not know an attack's means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.neighbours import bursts, garbage, hoards, members, ports, strangers
from tests.neighbours.field import Field

MIXED: Final = 4
"""Attacks of one mix, which run at the same time, each in a process of its own."""

MIX: Final = "random mix"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of attack: what runs, and the sentence that says what it is."""

    name: str
    says: str
    run: Callable[[Field], None]


def _kind(run: Callable[[Field], None]) -> Kind:
    says = " ".join((run.__doc__ or "").split())
    return Kind(run.__name__.replace("_", " "), says, run)


ATTACKS: Final = {
    kind.name: kind
    for kind in map(
        _kind,
        (
            *bursts.ATTACKS,
            *garbage.ATTACKS,
            *strangers.ATTACKS,
            *hoards.ATTACKS,
            *ports.ATTACKS,
            *members.ATTACKS,
        ),
    )
}
"""Attacks of one process each."""

RELOADED: Final = "reloads"
RESTARTED: Final = "flooded restart"
LEADER_RESTARTED: Final = "flooded leader restart"
"""Kinds with an operator: all nodes reload their users, or one is killed and started again."""

WITH_SECRET: Final = frozenset({"forged leader", "proven again"})
"""Kinds for nodes with a secret. Where they have none, every program is a member: it may lead."""

DYING: Final = "programs that die"
GUESSED: Final = frozenset({"guessers", "stale tokens"})
"""Kinds beside which users log in by password, too."""

SILENT: Final = frozenset({"half open", "idle everywhere", "peer half open"})
"""Kinds that only open connections; every other one has to write something."""

LEAST_SECONDS: Final = {
    RESTARTED: 8.0,
    LEADER_RESTARTED: 8.0,
    DYING: 75.0,
    **dict.fromkeys(GUESSED, 8.0),
}
"""Kinds that need longer than others: until a node is back, a session's time is over, or several
users have logged in."""


def lasts(kind: str, seconds: float) -> float:
    """Seconds of an attack that is asked for `seconds`."""
    return max(seconds, LEAST_SECONDS.get(kind, 0.0))


MIXABLE: Final = tuple(sorted(ATTACKS.keys() - {RELOADED, *LEAST_SECONDS, *WITH_SECRET}))
"""Kinds of which a mix is drawn."""

KINDS: Final = (*(name for name in ATTACKS if name not in WITH_SECRET), MIX, *sorted(WITH_SECRET))
"""All kinds, the mix among them; those for other nodes last."""

SAYS: Final = {name: kind.says for name, kind in ATTACKS.items()} | {
    MIX: f"{MIXED} of the others at the same time, drawn from a seed"
}

IN_EVERY_RUN: Final = (
    "pings",
    "lone settlements",
    "evil values",
    "crash loop",
    "http slow",
    MIX,
)
"""Those of `make test`: one or two of each module."""
