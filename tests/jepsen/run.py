"""A run: a workload on a real cluster while something goes wrong, healing, draining, verdict.

Owns the order of a run, its limits, and what it leaves: the merged history, and for a failed one
the logs and the disks as well. A run is decided by its plan; of what real processes do with it only
the schedule of faults can be replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.processes import Household
from tests.jepsen import checkers, clones, images, insides, members, rooted, starved, upgrading
from tests.jepsen.checkers import Violation
from tests.jepsen.cluster import Cluster, RunFailed, until
from tests.jepsen.history import Event, line_of
from tests.jepsen.namespaces import Namespaced
from tests.jepsen.nemeses import FAULTS, Fault
from tests.jepsen.network import Proxied
from tests.jepsen.workloads import KNOWN, Workload

DECLARE_S = 20.0
SETTLE_S = 1.5
"""Before the first fault: clients have connected by then."""

PUBLISHED_S = 40.0
"""After healing, until publishers have ended: a call's timeout, and a pause that comes before."""

REDRIVEN_S = 30.0
DRAIN_S = 120.0
"""Until the queues are empty (V3): the longest lock with renewals, redeliveries behind it, and what
consumers on a busy machine have left, one message at a time."""

CONSUMERS_S = 20.0
FAULT_S = (1.0, 3.0)
QUIET_S = (0.3, 1.5)
ELECTION_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: the command that `again` gives replays it."""

    workload: str
    faults: tuple[str, ...]
    seed: int
    seconds: float
    lasting: str | None = None
    """A fault that stays until the end of the faults, while the majority has to serve (V2)."""
    mutant: str | None = None
    namespaces: bool = False
    """On a network of namespaces, not of proxies."""
    nodes: int = 3
    secured: bool = False
    """With TLS on the ports of clients and of nodes, and a user."""
    release: str = ""
    """The older release that all nodes and every other program begin with; in the end the nodes run
    today's, and the upgrade is finished. With the fault `swap` they go there and back."""
    after: tuple[str, ...] = ()
    """With a release: faults behind the finish, the first at once, for as long again."""
    calm_s: float = 0.0
    """Seconds that all goes on after healing: whether what is due comes in time (S8, S9) is judged
    where nothing was wrong just before."""

    @property
    def again(self) -> str:
        """The command that runs this plan again."""
        more = f" --lasting {self.lasting}" if self.lasting else ""
        more += f" --mutant {self.mutant}" if self.mutant else ""
        more += " --namespaces" if self.namespaces else ""
        more += f" --nodes {self.nodes}" if self.nodes != 3 else ""
        more += " --secured" if self.secured else ""
        more += f" --release {self.release}" if self.release else ""
        more += f" --after {','.join(self.after)}" if self.after else ""
        more += f" --calm {self.calm_s:g}" if self.calm_s else ""
        return (
            f"python -m tests.jepsen --workload {self.workload} --faults {','.join(self.faults)}"
            f" --seed {self.seed} --seconds {self.seconds:g}{more}"
        )


@dataclass(slots=True)
class Result:
    """The result of a plan."""

    plan: Plan
    folder: Path
    events: list[Event]
    violations: list[Violation]
    memory: list[tuple[float, str, int]]
    seconds: float
    failed: str = ""

    @property
    def good(self) -> bool:
        """Nothing is wrong."""
        return not self.violations and not self.failed

    def text(self) -> str:
        """A line for the terminal, and what is wrong."""
        plan = self.plan
        begun = sum(1 for one in self.events if one["f"] == "nemesis" and one["type"] == "invoke")
        faults = "+".join(plan.faults) or "calm"
        faults += f" then {'+'.join(plan.after)}" if plan.after else ""
        where = " in namespaces" if plan.namespaces else ""
        where += f" {plan.nodes} nodes" if plan.nodes != 3 else ""
        where += " TLS" if plan.secured else ""
        head = (
            f"{'ok  ' if self.good else 'FAIL'} {plan.workload:13} {faults}{where}"
            f"  seed {plan.seed}  {self.seconds:.0f} s, {len(self.events)} events, {begun} faults"
        )
        if self.good:
            return head
        wrong = [self.failed, *map(str, self.violations[:3])]
        lines = [line for line in wrong if line]
        more = len(self.violations) - 3
        lines += [f"and {more} more violations"] if more > 0 else []
        return "\n".join(
            [head, *lines, f"history, logs, disks: {self.folder}", f"again: {plan.again}"]
        )


def all_faults() -> dict[str, Fault]:
    """These and those that a plan with an older release may have beside them."""
    return {**known_faults(), **upgrading.FAULTS}


FREE = {**FAULTS, **insides.FAULTS, **images.FAULTS, **clones.FAULTS, **members.FAULTS}
"""Those that need no rights."""

ON_DISKS = {**rooted.DISKS, **clones.DISKS}
"""Those that need a disk for each node."""

NEEDING = (
    (ON_DISKS, rooted.why_not),
    (rooted.CALLS, rooted.why_no_trace),
    (starved.FAULTS, starved.why_not),
)


def known_faults() -> dict[str, Fault]:
    """Those that can be done here: without rights, and with them where we have them."""
    return FREE | {name: one for some, why in NEEDING if not why() for name, one in some.items()}


def skipped() -> list[str]:
    """The faults that are not possible here, and the reasons."""
    return [f"{', '.join(some)}: {reason}" for some, why in NEEDING if (reason := why())]


async def run(plan: Plan, folder: Path) -> Result:
    """Carry out a plan on a cluster of its own. Of a good run only the history stays."""
    shutil.rmtree(folder, ignore_errors=True)
    disks = bool({*plan.faults, *plan.after, plan.lasting} & ON_DISKS.keys())
    began = time.monotonic()
    made = cluster_in(
        folder, plan.seed, disks=disks, namespaces=plan.namespaces,
        nodes=plan.nodes, secured=plan.secured,
    )  # fmt: skip
    async with made as cluster:
        cluster.mutant = plan.mutant
        if plan.release:
            upgrading.begin(cluster, plan.release)
        result = await period(plan, cluster, folder)
    result.seconds = time.monotonic() - began
    if result.good:
        for part in ("data", "disks", "history", "logs"):
            shutil.rmtree(folder / part, ignore_errors=True)
    return result


@contextlib.asynccontextmanager
async def cluster_in(
    folder: Path,
    seed: int,
    *,
    disks: bool,
    namespaces: bool = False,
    nodes: int = 3,
    secured: bool = False,
) -> AsyncIterator[Cluster]:
    """A cluster in a folder, started; in the end nothing of it runs. `disks`: that lose power."""
    network = Namespaced if namespaces else Proxied
    household = Household(folder / "logs")
    cluster = Cluster(household, folder, seed, nodes=nodes, secured=secured, network=network)
    with rooted.Disks(cluster) if disks else contextlib.nullcontext():
        try:
            yield cluster
        finally:
            await cluster.stop()
            if disks:
                rooted.keep(cluster)


async def period(plan: Plan, cluster: Cluster, folder: Path) -> Result:
    """Carry out a plan on this cluster, started here if it was not; judge what was seen."""
    began = time.monotonic()
    failed = ""
    cluster.memory.clear()
    try:
        if not cluster.started:
            await cluster.start()
        await _live(plan, cluster)
    except (RunFailed, OSError) as error:
        failed = f"V1: {error}"
    events = cluster.take_history()
    _write(plan, folder, events)
    violations = checkers.find(events) + checkers.search(events)
    seconds = time.monotonic() - began
    return Result(plan, folder, events, violations, list(cluster.memory), seconds, failed)


def _write(plan: Plan, folder: Path, events: list[Event]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(asdict(plan)))
    (folder / "history.jsonl").write_text("".join(line_of(one) + "\n" for one in events))


async def _live(plan: Plan, cluster: Cluster) -> None:
    workload = KNOWN[plan.workload]
    faults = all_faults()
    chosen, after = ([faults[name] for name in some] for some in (plan.faults, plan.after))
    lasting = faults[plan.lasting] if plan.lasting else None
    if plan.release:
        upgrading.begin_programs(cluster, workload)
    slow_links = lasting is not None or any(one.slow_links for one in (*chosen, *after))
    cluster.tell(slow_links=slow_links)
    await _do(cluster, "d1", "declare", workload.queues, DECLARE_S)
    cluster.start_programs(workload)
    await _ready(cluster, list(cluster.programs))
    await asyncio.sleep(SETTLE_S)
    rng = random.Random(f"faults {plan.seed}")
    if after:
        upgrading.keep(cluster, rng)
    await _go_wrong(cluster, rng, chosen, lasting, time.monotonic() + plan.seconds)
    if plan.release:
        if after:
            upgrading.keep(cluster, rng)
        await upgrading.finish(cluster)
        if after:
            await _go_wrong_by(cluster, rng, after[:1])
            await _go_wrong(cluster, rng, after, None, time.monotonic() + plan.seconds)
    await _heal(cluster)
    cluster.revive()
    await asyncio.sleep(plan.calm_s)
    await _finish(cluster, workload)


async def _go_wrong(
    cluster: Cluster, rng: random.Random, chosen: list[Fault], lasting: Fault | None, end: float
) -> None:
    """Fault after fault until `end`, with quiet between them; what is begun is always ended."""
    async with contextlib.AsyncExitStack() as stack:
        if lasting is not None:
            await stack.enter_async_context(_told(cluster, rng, lasting, lasting=True))
        while time.monotonic() < end:
            await asyncio.sleep(rng.uniform(*QUIET_S))
            cluster.revive()
            if lasting is None:
                await _all_up(cluster)
            if not chosen or rng.random() < 0.1:
                continue
            some = [rng.choice(chosen)]
            others = [one for one in chosen if not one.alone and one.name != some[0].name]
            if others and not some[0].alone and rng.random() < 0.4:
                some.append(rng.choice(others))
            await _go_wrong_by(cluster, rng, some)


async def _go_wrong_by(cluster: Cluster, rng: random.Random, some: list[Fault]) -> None:
    """These faults, beside each other."""
    async with contextlib.AsyncExitStack() as period:
        for fault in some:
            await period.enter_async_context(_told(cluster, rng, fault))
        await asyncio.sleep(rng.uniform(*FAULT_S))


async def _all_up(cluster: Cluster) -> None:
    """Every node runs and answers, and no change of members is under way: a fault on top of what
    is still on its way would be two."""
    await members.ended(cluster)
    for name in cluster.names:
        cluster.start_node(name)
    for name in cluster.names:
        await cluster.came_up(name)


@contextlib.asynccontextmanager
async def _told(
    cluster: Cluster, rng: random.Random, fault: Fault, *, lasting: bool = False
) -> AsyncIterator[None]:
    """A fault whose begin and end stand in the history."""
    nodes: list[str] = []
    cluster.add("invoke", "nemesis", "nemesis", fault=fault.name, nodes=nodes, lasting=lasting)
    try:
        async with fault.begin(cluster, rng) as nodes:
            cluster.add("info", "nemesis", "nemesis", fault=fault.name, nodes=nodes)
            yield
    finally:
        cluster.add("ok", "nemesis", "nemesis", fault=fault.name, nodes=nodes)


async def _heal(cluster: Cluster) -> None:
    """End every fault: all links, all disks, all nodes, all programs."""
    cluster.network.heal()
    for name in cluster.names:
        cluster.control(name)
    for name in cluster.children:
        cluster.signal(name, signal.SIGCONT)
    for name in cluster.names:
        cluster.start_node(name)
    term = cluster.term()
    cluster.add("ok", "nemesis", "nemesis", fault="heal", nodes=[])
    cluster.views.clear()
    leader = await cluster.leader()
    cluster.add("ok", "leader", leader, node=leader, term=max(term, cluster.term()))
    await members.ended(cluster)
    await members.dismissed(cluster)
    for name in cluster.names:
        await cluster.bring_up(name)


async def _finish(cluster: Cluster, workload: Workload) -> None:
    """Wait for publishers, send dead letters back where that is asked for, drain, compare nodes."""
    cluster.revive()
    publishers = [name for name, (kind, _) in cluster.programs.items() if kind == "publish"]
    consumers = [name for name, (kind, _) in cluster.programs.items() if kind == "consume"]
    await _ready(cluster, publishers + consumers)
    for name in publishers + consumers:
        cluster.signal(name, signal.SIGUSR1)
    await _end(cluster, publishers, PUBLISHED_S, "publishers do not end")
    if workload.redrives:
        await _do(cluster, "r1", "redrive", "dead", REDRIVEN_S)
    for name in consumers:
        cluster.signal(name, signal.SIGTERM)
    await _end(cluster, consumers, CONSUMERS_S, "consumers do not end")
    cluster.programs.clear()
    queues = sorted(workload.queues, key=lambda queue: queue == "dead")
    await _do(cluster, "d2", "drain", queues, DRAIN_S)
    await cluster.states()
    await _do(cluster, "d3", "delete", queues, DECLARE_S)


async def _ready(cluster: Cluster, names: list[str]) -> None:
    """Wait until programs listen to signals: one that was just started would die of them."""
    await until(
        lambda: all(cluster.listens(name) for name in names if cluster.runs(name)), ELECTION_S
    )


async def _do(cluster: Cluster, name: str, kind: str, how: Any, seconds: float) -> None:
    """Have a program do something, and wait until it has."""
    cluster.program(name, kind, how)
    del cluster.programs[name]
    await _end(cluster, [name], seconds, f"{kind} does not end")


async def _end(cluster: Cluster, names: list[str], seconds: float, what: str) -> None:
    left = await cluster.ended(names, seconds)
    if left:
        said = cluster.children[left[0]].last_lines(4)
        raise RunFailed(f"{what} within {seconds:g} s: {', '.join(left)}: {said}")
