"""Everything that a seed decides before anything runs: the cluster, the programs, the faults.

Owns the odds. A plan is data: a failing one can be cut (`cut`) and run again. Knows nothing of how
a fault is done.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.shrinking import shortest

FAULT_SECONDS = 9.0
"""Duration of the faults: several elections, and locks that run out in between."""

FIRST_FAULT_SECONDS = 1.2
"""By then there is a leader, as a rule."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its time, its node and its counterpart; `number` is a little chance."""

    at: float
    kind: str
    node: str = ""
    other: str = ""
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.kind} {self.node} {self.other} {self.number}".strip()


@dataclass(frozen=True, slots=True)
class Consuming:
    """The behaviour of a consuming program."""

    prefetch: int
    lock_s: float
    workers: int
    auto_renew: bool
    slow: float
    """Probability that a handler takes longer than the lock."""
    renewals: int = 0
    """By the leader, where the client does not renew."""

    def seconds(self, rng: random.Random) -> float:
        """Draw the seconds that a handler takes."""
        if rng.random() < self.slow:
            return rng.uniform(0.3, 2.5) * self.lock_s
        return rng.choice((0.0, 0.002, 0.02, 0.2)) * rng.random()


@dataclass(frozen=True, slots=True)
class Verbs:
    """Programs that do more than publish and consume: the number of each kind."""

    getters: int = 0
    durables: int = 0
    """Programs that share one durable consumer: each opening takes it over."""
    numbered: int = 0
    """Messages of a named producer."""
    ttl: bool = False
    """Whether some messages expire."""
    bury_expired: bool = False
    redrives: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run. Everything else is drawn from `seed` while it runs."""

    seed: int
    nodes: int
    producers: tuple[int, ...]
    consumers: tuple[Consuming, ...]
    max_deliveries: int
    faults: tuple[Fault, ...]
    lasting: tuple[Fault, ...] = ()
    """Faults that are never healed: of a minority, without which all has to go on (V2)."""
    ordering: str = "none"
    timeout_s: float = 8.0
    """Of every call; 8 s is longer than two elections, the short ones often end unknown."""
    snapshot_bytes: int = 1 << 30
    """Journal between two snapshots of a node; in most plans a few dozen entries."""
    verbs: Verbs = Verbs()


KINDS: dict[str, tuple[int, str]] = {
    "kill": (4, "restart"),
    "kill_leader": (6, "restart"),
    "power": (3, "restart"),
    "power_leader": (4, "restart"),
    "power_in_turn": (4, "restart"),
    "power_all": (1, ""),
    "disk_fails": (3, "restart"),
    "disk_full": (2, "restart"),
    "pause": (3, "resume"),
    "pause_leader": (5, "resume"),
    "cut": (3, "heal"),
    "cut_one_way": (4, "heal"),
    "isolate_leader": (5, "heal"),
    "break": (3, ""),
    "slow": (3, "heal"),
    "client_break": (5, ""),
    "client_cut": (4, "heal"),
    "client_kill": (3, ""),
    "client_pause": (4, "client_resume"),
}
"""Kinds of faults: the relative frequency of each, and the fault that ends it later."""

MORE_KINDS: dict[str, tuple[int, str]] = {
    "transfer_leader": (5, ""),
    "slow_disk": (4, "fast_disk"),
    "kill_leader": (1, "restart"),
    "client_kill": (3, ""),
    "client_break": (3, ""),
    "client_pause": (1, "client_resume"),
    "abandon_leader": (4, "heal"),
}
"""The same of kinds that came later: drawn separately, so that the rest of a seed's plan stays."""


MEMBER_KINDS: dict[str, tuple[int, str]] = {
    "member_add": (5, ""),
    "member_remove": (3, ""),
    "member_remove_leader": (2, ""),
    "member_replace": (3, ""),
    "member_replace_leader": (2, ""),
    "member_replace_dead": (3, ""),
    "member_move": (2, ""),
    "member_undo": (1, ""),
    "kill_leader": (6, "restart"),
    "power_leader": (2, "restart"),
    "kill": (2, "restart"),
    "isolate_leader": (2, "heal"),
    "break": (2, ""),
}
"""Wishes of an operator, and faults that befall nodes amid it."""

DISK_KINDS: dict[str, tuple[int, str]] = {
    "disk_image": (6, ""),
    "disk_set_back": (4, ""),
    "disk_wiped": (3, ""),
    "disk_copied": (2, ""),
    "disk_rots": (5, ""),
    "disk_rots_cold": (2, ""),
    "disk_lies": (4, ""),
    "disk_was_lying": (5, ""),
    "kill_leader": (2, "restart"),
    "kill": (2, "restart"),
    "power": (2, "restart"),
    "break": (1, ""),
}
"""Damage to disks, each where its members' promises stand (`wrong_disks.py`)."""

ROOM_KINDS: dict[str, tuple[int, str]] = {"disk_small": (1, "disk_roomy")}
"""A disk that is full while the others are not: drawn apart, for it came later."""


def is_of_operators(fault: Fault) -> bool:
    """Whether it is a change of the members, or of what is on a disk."""
    return fault.kind.startswith(("member", "disk")) and fault.kind not in KINDS


def draw(seed: int) -> Plan:
    """The plan of a seed: the basic one, and what is drawn on top of it."""
    plan = basic(seed)
    rng = random.Random(f"more {seed}")
    if rng.random() < 0.25:
        return plan
    verbs = Verbs(
        # Beside a single active consumer no other takes messages.
        getters=0 if plan.ordering == "single_active" else rng.choice((0, 1, 1)),
        durables=0 if plan.ordering == "single_active" else rng.choice((0, 1, 2)),
        numbered=rng.choice((0, 12, 24)),
        ttl=rng.random() < 0.5,
        bury_expired=rng.random() < 0.5,
        redrives=rng.random() < 0.4,
    )
    names = [f"n{place + 1}" for place in range(plan.nodes)]
    clients = [*(f"g{n + 1}" for n in range(verbs.getters)), "pn", "r1"]
    clients += [f"t{n + 1}" for n in range(verbs.durables)]
    more = _faults(rng, names, clients, MORE_KINDS)
    faults = tuple(sorted((*plan.faults, *more), key=lambda fault: fault.at))
    return replace(plan, verbs=verbs, faults=faults)


def sharing(seed: int) -> Plan:
    """A seed's plan in which two programs that share a durable consumer get most messages."""
    plan = draw(seed)
    verbs = replace(plan.verbs, getters=0, durables=2)
    ordering = "none" if plan.ordering == "single_active" else plan.ordering
    return replace(plan, verbs=verbs, ordering=ordering, consumers=plan.consumers[:1])


def led(seed: int) -> Plan:
    """A seed's plan in which the leader renews every lock."""
    plan = draw(seed)
    consumers = [replace(one, auto_renew=False, renewals=2) for one in plan.consumers]
    return replace(plan, consumers=tuple(consumers))


def members(seed: int) -> Plan:
    """A seed's plan in which members change, and few other things go wrong."""
    return _operated(seed, "members", MEMBER_KINDS, (1, 3, 3, 3, 5), (1.0, 1.5, 2.0), joined=2)


def disks(seed: int) -> Plan:
    """A seed's plan in which disks go wrong, one at a time."""
    return _with_small_disks(_operated(seed, "disks", DISK_KINDS, (3, 3, 5), (2.0, 3.0)))


def operated(seed: int) -> Plan:
    """A seed's plan with all that there is: what is drawn everywhere, and both of these."""
    rng = random.Random(f"operated {seed}")
    kinds = MEMBER_KINDS | DISK_KINDS
    plan = replace(draw(seed), lasting=())
    names = [f"n{place + 1}" for place in range(plan.nodes)]
    more = _faults(rng, names, ["p1"], kinds, paces=(0.7, 1.5))
    return _with_small_disks(replace(plan, faults=_sorted((*plan.faults, *more))))


def _with_small_disks(plan: Plan) -> Plan:
    """Half of the plans have disks without room for a while, most often one at a time."""
    rng = random.Random(f"room {plan.seed}")
    if rng.random() < 0.5:
        return plan
    names = [f"n{place + 1}" for place in range(plan.nodes)]
    small = _faults(rng, names, [], ROOM_KINDS, paces=(0.3, 0.6))
    return replace(plan, faults=_sorted((*plan.faults, *small)))


def _operated(
    seed: int,
    what: str,
    kinds: dict[str, tuple[int, str]],
    counts: tuple[int, ...],
    paces: tuple[float, ...],
    joined: int = 0,
) -> Plan:
    """`joined`: faults hit so many of the machines too that come later."""
    rng = random.Random(f"{what} {seed}")
    plan = basic(seed, rng.choice(counts))
    names = [f"n{place + 1}" for place in range(plan.nodes + joined)]
    faults = _faults(rng, names, ["p1"], kinds, paces=paces)
    return replace(plan, faults=faults, lasting=())


def _sorted(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at))


PLANS: dict[str, Callable[[int], Plan]] = {
    "drawn": draw,
    "sharing": sharing,
    "led": led,
    "members": members,
    "disks": disks,
    "operated": operated,
}
"""Kinds of plans, by the name under which their seeds are reported."""


def basic(seed: int, nodes: int | None = None) -> Plan:
    """Publishers and consumers alone: what the mutants are scored on."""
    rng = random.Random(f"plan {seed}")
    count = rng.choice((3, 3, 3, 3, 5, 1)) if nodes is None else nodes
    producers = tuple(rng.randint(15, 45) for _ in range(rng.randint(1, 3)))
    consumers = tuple(
        Consuming(
            prefetch=rng.choice((1, 2, 5, 20)),
            lock_s=rng.choice((1.0, 1.0, 1.5, 3.0)),
            workers=rng.choice((1, 1, 2, 4)),
            auto_renew=rng.random() < 0.7,
            slow=rng.choice((0.0, 0.1, 0.3, 0.7)),
        )
        for _ in range(rng.randint(2, 4))
    )
    return Plan(
        seed,
        count,
        producers,
        consumers,
        max_deliveries=rng.choice((3, 4, 20)),
        faults=_faults(
            rng,
            [f"n{place + 1}" for place in range(count)],
            [f"p{place + 1}" for place in range(len(producers))]
            + [f"c{place + 1}" for place in range(len(consumers))],
            KINDS,
        ),
        lasting=_lasting(rng, count),
        ordering=rng.choice(("none", "none", "none", "key", "single_active")),
        timeout_s=rng.choice((1.5, 4.0, 8.0)),
        snapshot_bytes=rng.choice((6_000, 20_000, 60_000, 1 << 30)),
    )


def _lasting(rng: random.Random, nodes: int) -> tuple[Fault, ...]:
    """Draw a sick node of three or more, in a quarter of the runs."""
    if nodes < 3 or rng.random() < 0.75:
        return ()
    names = [f"n{place + 1}" for place in range(nodes)]
    sick = rng.choice(names)
    others = [name for name in names if name != sick]
    kind = rng.choice(("kill", "pause", "deaf", "mute"))
    if kind == "deaf":
        return tuple(Fault(0.0, "cut_one_way", other, sick) for other in others)
    if kind == "mute":
        return tuple(Fault(0.0, "cut_one_way", sick, other) for other in others)
    return (Fault(0.0, kind, sick),)


def _faults(
    rng: random.Random,
    names: list[str],
    clients: list[str],
    known: dict[str, tuple[int, str]],
    paces: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0),
) -> tuple[Fault, ...]:
    # Each seed has its own mixture: what is rare among everything is common where little else is.
    kinds = [kind for kind in known if rng.random() < 0.4] or list(known)
    weights = [known[kind][0] for kind in kinds]
    pace = rng.choice(paces)
    faults: list[Fault] = []
    at = FIRST_FAULT_SECONDS
    while pace and at < FAULT_SECONDS:
        kind = rng.choices(kinds, weights)[0]
        node = rng.choice(names)
        other = rng.choice([name for name in names if name != node] or names)
        if kind.startswith("client"):
            other = rng.choice(clients)
        faults.append(Fault(round(at, 4), kind, node, other, rng.randint(1, 40)))
        if known[kind][1]:
            end = at + rng.choice((0.05, 0.5, 1.5, 3.0)) * (0.5 + rng.random())
            faults.append(Fault(round(end, 4), known[kind][1], node, other))
        at += rng.expovariate(pace)
    return _sorted(tuple(faults))


def cut(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """The plan with every fault left out that it fails without."""

    def still(faults: tuple[Fault, ...]) -> bool:
        return fails(replace(plan, faults=faults))

    return replace(plan, faults=shortest(plan.faults, still))
