"""A simulated cluster with its clients: nodes, network, history, and what is known of all.

Owns the parts and the faults. What must hold is checked by `check_raft` while it runs, and by
`tests.jepsen.checkers` afterwards on the history; what clients do is `workload`'s business.
"""

from __future__ import annotations

import errno
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fifo.machine.commands import Command
from fifo.machine.effects import Deliver
from fifo.machine.machine import Machine, Outcome
from node.broker import limits
from node.broker.counters import Histogram
from node.broker.entry import Entry
from node.broker.upgrade import Finding, Upgrade
from node.config import Address, ClusterConfig, cluster_config
from node.raft import RaftNode
from node.server import Node
from node.testing.clockwork import Program, VirtualLoop
from node.testing.network import Network
from tests.jepsen.history import History
from tests.sim.check_raft import RaftChecks
from tests.sim.hosts import Host
from tests.sim.operating import Operator
from tests.sim.plan import Fault, Plan, is_of_operators
from tests.sim.wrong_disks import Disks
from tests.support import raft_probe

QUEUE, DEAD = "work", "dead"


class _Lateness(Histogram):
    """The lateness of locks that ended, reported to the checks too."""

    __slots__ = ("_tell",)

    def __init__(self, bounds: Sequence[float], tell: Callable[[float], None]) -> None:
        super().__init__(bounds)
        self._tell = tell

    def note(self, value: float, count: int = 1) -> None:
        """See `Histogram.note`."""
        self._tell(value)
        super().note(value, count)


class Applied(NamedTuple):
    """An entry of the log and what came of it, where it was applied first."""

    at: int
    """Its index."""
    entry: Entry
    commands: list[Command]
    outcome: Outcome


class World:
    """Everything of one run. `plan` decides all of it."""

    def __init__(self, plan: Plan, *, tracing: bool = False) -> None:
        self.plan = plan
        self.rng = random.Random(f"world {plan.seed}")
        self.loop = VirtualLoop()
        self.network = Network(self.loop, random.Random(f"network {plan.seed}"))
        self.history = History(lambda: self.loop.now)
        self.tracing = tracing
        self.trace = 0
        self.config = _config(plan)
        self.hosts = {node.name: Host(self, node.name) for node in self.config.nodes}
        self.checks = RaftChecks(self)
        self.sick = _sick(plan.lasting)
        self.programs: dict[str, Program] = {}
        self.healed = False
        self.calm = False
        self.drained = False
        self.counts: dict[str, int] = {}
        self.mark_entries: int | None = None
        """Entries between two marks of a node's state; None: as everywhere."""
        self.digest_ms: int | None = None
        """Cluster time between two digests of the whole state; None: as everywhere."""
        self.raised_at: float | None = None
        """When the version of the cluster may be raised; None: as soon as all members have met."""
        self.on_hand_out: Callable[[str], None] = lambda _number: None
        self.on_first_applied: Callable[[Applied, Machine], None] = lambda _applied, _machine: None
        self.operated = any(is_of_operators(fault) for fault in plan.faults)
        """Whether members change, or disks go wrong."""
        self.operator = Operator(self)
        self.disks = Disks(self)

    @property
    def url(self) -> str:
        """The address of a program that starts now: of the machines that there are."""
        at = (host.config.node(host.name).client for host in self.hosts.values())
        return "fifo://" + ",".join(map(str, at))

    # --- what happens -----------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Something that has to happen at this instant in every run of this plan."""
        line = f"{self.loop.now:.6f} {what}"
        self.trace = zlib.crc32(line.encode(), self.trace)
        if self.tracing:
            print(line)

    def happened(self, what: str) -> None:
        """Count something that should happen sometimes."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def fail(self, what: str) -> None:
        """A property does not hold: the run is over."""
        self.loop.failed(AssertionError(f"seed {self.plan.seed}, {self.loop.now:.4f} s: {what}"))

    def chance(self, name: str) -> random.Random:
        """A source of randomness of one program's own."""
        return random.Random(f"{self.plan.seed} {name}")

    # --- nodes ------------------------------------------------------------------------------------

    def watch(self, host: Host, node: Node) -> None:
        """See what a new node does: its roles, and what it applies."""
        on_role, apply = node.broker.on_role, node.broker.host.apply
        freeze, restore = node.broker.host.freeze, node.broker.host.restore
        incarnation = host.incarnation

        def changed(role: str, term: int) -> None:
            self.note(f"{host.name} is {role} of term {term}")
            self.happened(f"role {role}")
            self.checks.role(host.name, incarnation, role, term)
            if role == "leader":
                self.history.add("ok", "leader", host.name, node=host.name, term=term)
                self._count_overlaps()
            on_role(role, term)

        def applied(index: int, payload: memoryview) -> Any:
            result = apply(index, payload)
            digest = zlib.crc32(payload)
            self.note(f"{host.name} applies {index} {digest:08x}")
            if self.checks.applied((host.name, incarnation), index, digest, node):
                machine = node.broker.host.machine
                self._first_applied(host.name, result[2], machine.cluster_time_ms)
                self.on_first_applied(Applied(index, *result), machine)
            return result

        def frozen() -> Any:
            self.happened("snapshot begun")
            self.checks.frozen((host.name, incarnation), node)
            return freeze()

        def restored(chunks: Iterator[bytes]) -> Iterator[None]:
            yield from restore(chunks)
            self.happened(
                "snapshot restored" if raft_probe.raft_of(node) is None else "snapshot installed"
            )
            self.checks.restored((host.name, incarnation), node)

        if self.mark_entries is not None:
            node.broker.host.mark_entries = self.mark_entries
        if self.digest_ms is not None:
            node.broker.host.digest_ms = node.broker.host.digest_at_ms = self.digest_ms
            node.broker.digests._wait_s *= self.digest_ms / limits.DIGEST_MS
        if self.raised_at is not None:
            self._hold_version(node, self.raised_at)
        counters = node.broker.counters
        counters.lateness = _Lateness(
            counters.lateness.bounds, lambda seconds: self.checks.late(host.name, seconds)
        )
        node.broker.host.freeze = frozen  # type: ignore[method-assign]  # a look from outside
        node.broker.host.restore = restored  # type: ignore[method-assign]  # likewise
        node.broker.on_role = changed  # type: ignore[method-assign]  # a look from outside
        node.broker.host.apply = applied  # type: ignore[method-assign]  # likewise

    def _hold_version(self, node: Node, until: float) -> None:
        """Have a node raise the version from an instant on, and not before."""
        make = node._make_upgrade

        def held() -> Upgrade:
            found = make()
            found.automatic = True
            judged = found.judged

            def judged_then() -> Finding:
                now = judged()
                return now if self.loop.now >= until else replace(now, obstacles=("not yet",))

            found.judged = judged_then  # type: ignore[method-assign]
            return found

        node._make_upgrade = held  # type: ignore[method-assign]

    def _count_overlaps(self) -> None:
        """Count the leaders that may still grant renewals when a later one is elected."""
        for host in self.hosts.values():
            leadership = None if host.running is None else host.running.broker.leadership
            if leadership is not None and leadership.may_grant():
                self.happened("elected beside a lease")

    def _first_applied(self, name: str, outcome: Outcome, at_ms: int) -> None:
        """Note what the machine hands out with an entry, where it is applied first."""
        for effect in outcome.effects:
            self.happened(f"effect {type(effect).__name__}")
            if isinstance(effect, Deliver) and not effect.repeat:
                self._handed_out(name, effect, at_ms)

    def _handed_out(self, name: str, effect: Deliver, at_ms: int) -> None:
        token = effect.first_token
        for run in effect.runs:
            for place in range(run.count):
                number = f"{run.queue_number}.{run.producer}.{run.number + place}"
                self.history.add(
                    "ok", "checkout", name,
                    id=number,
                    queue=effect.queue,
                    consumer=effect.consumer,
                    token=token,
                    at_ms=at_ms,
                    lock_ms=effect.lock_ms,
                    attempt=1 if run.attempts is None else run.attempts[place],
                    failures=0 if run.failures is None else run.failures[place],
                )  # fmt: skip
                self.on_hand_out(number)
                token += 1

    def leader(self) -> Host | None:
        """The host whose node leads the newest term and may act, if there is one."""
        leading = [host for host in self.hosts.values() if host.running and host.running.leads]
        return max(leading, key=lambda host: raft_probe.running_raft(host.node).term, default=None)

    def add_host(self, name: str, config: ClusterConfig) -> Host:
        """A machine that is new."""
        host = self.hosts[name] = Host(self, name, config)
        return host

    def leading(self) -> RaftNode | None:
        """The Raft node of the leader, if there is one."""
        leader = self.leader()
        running = None if leader is None else leader.running
        return None if running is None else raft_probe.raft_of(running)

    def settled(self) -> bool:
        """Whether nothing is under way that an operator or a wrong disk has begun."""
        return not self.operated or self.operator.settled()

    def healthy(self) -> list[Host]:
        """The hosts of all members but the one that is never healed."""
        names = self.checks.members
        return [host for name, host in self.hosts.items() if name in names and name != self.sick]

    # --- faults -----------------------------------------------------------------------------------

    def act(self, fault: Fault) -> None:
        """Do what a fault says, where it can be done now."""
        self.note(f"fault {fault}")
        kind = fault.kind
        host = self.hosts.get(fault.node)
        if kind.endswith("leader") and not kind.startswith("member"):
            host = self.leader()
        if host is None and not kind.startswith("member"):
            return
        if not self.disks.may_act(kind, host):
            return
        self.happened(f"fault {kind}")
        if kind.startswith("member"):
            self.operator.act(kind, fault.node)
            return
        assert host is not None
        if is_of_operators(fault):
            self.disks.act(kind, host)
        elif kind.startswith("client"):
            self._act_on_client(fault, self.programs.get(fault.other))
        elif kind in ("kill", "kill_leader", "power", "power_leader"):
            if kind.startswith("power"):
                host.lose_power(self.rng)
            else:
                host.kill()
        elif kind == "power_in_turn":
            host.lose_power_in_turn(fault.number % 12 + 1)
        elif kind == "transfer_leader":
            host.transfer()
        elif kind == "slow_disk":
            host.sync_seconds = fault.number / 100
        elif kind == "fast_disk":
            host.sync_seconds = 0.0
        elif kind in ("disk_fails", "disk_full"):
            number = errno.EIO if kind == "disk_fails" else errno.ENOSPC
            host.fail_disk(fault.number % 12 + 1, number)
        elif kind == "power_all":
            for each in self.hosts.values():
                each.lose_power(self.rng)
                each.start()
        elif kind in ("pause", "pause_leader") and host.program is not None:
            host.program.pause()
        else:
            self._act_on_links(fault, host)

    def _act_on_links(self, fault: Fault, host: Host) -> None:
        network = self.network
        match fault.kind:
            case "restart":
                down = [each for each in self.hosts.values() if not each.alive]
                for each in down[:1]:
                    each.start()
            case "resume":
                programs = [each.program for each in self.hosts.values() if each.program]
                for program in [one for one in programs if one.paused][:1]:
                    program.resume()
            case "cut":
                network.cut(fault.node, fault.other)
                network.cut(fault.other, fault.node)
            case "cut_one_way":
                network.cut(fault.node, fault.other)
            case "isolate_leader":
                for name in self.hosts:
                    if name != host.name:
                        network.cut(name, host.name)
                        if fault.number % 3:
                            network.cut(host.name, name)
            case "abandon_leader":
                network.abandon(host.name, [name for name in self.hosts if name != host.name])
            case "heal":
                network.heal()
            case "break":
                network.break_between(fault.node, fault.other)
            case "slow":
                network.slow[(fault.node, fault.other)] = fault.number / 200

    def _act_on_client(self, fault: Fault, program: Program | None) -> None:
        if program is None or not program.alive:
            return
        match fault.kind:
            case "client_cut_from_followers":
                leader = self.leader()
                for name in self.hosts:
                    if leader is None or name != leader.name:
                        self.network.cut(fault.other, name)
            case "client_break":
                for name in self.hosts:
                    self.network.break_between(fault.other, name)
            case "client_cut":
                self.network.cut(fault.other, fault.node)
                if fault.number % 2:
                    self.network.cut(fault.node, fault.other)
            case "client_kill":
                self.network.kill(program, power=False)
                program.die()
            case "client_pause":
                program.pause()
            case "client_resume":
                for each in self.programs.values():
                    each.resume()

    def heal(self) -> None:
        """End every fault: all links, all nodes, all clients."""
        self.note("heal")
        self.healed = True
        self.network.heal()
        for host in self.hosts.values():
            host.storage.hook = host.storage.capacity_bytes = None
            host.sync_seconds = 0.0
            if host.program is not None:
                host.program.resume()
            host.start()
        for program in self.programs.values():
            program.resume()
        for fault in self.plan.lasting:
            self.act(fault)


def _sick(lasting: tuple[Fault, ...]) -> str | None:
    """The node that all lasting faults have in common."""
    if not lasting:
        return None
    if len(lasting) == 1:
        return lasting[0].node
    first, second = lasting[0], lasting[1]
    return first.node if first.node == second.node else first.other


def _config(plan: Plan) -> ClusterConfig:
    """A cluster whose machines are called as its nodes are."""
    config = cluster_config(plan.nodes, 7100, Path("simulated"))
    raft = replace(config.raft, snapshot_bytes=plan.snapshot_bytes)
    nodes = tuple(
        replace(
            node,
            client=Address(node.name, 7101),
            peer=Address(node.name, 7102),
            http=Address(node.name, 7103),
        )
        for node in config.nodes
    )
    return replace(config, nodes=nodes, secret=b"simulated secret", raft=raft)
