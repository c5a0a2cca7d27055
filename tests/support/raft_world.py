"""A cluster of real RaftNodes in one thread: fake clock, fake network, simulated disks.

Owns time, the network and the life of the nodes; the nodes, their journals and their frames are
the real code. Same seed, same trace, under any PYTHONHASHSEED. What must hold is checked after
every step by `raft_checks.py`; schedules of faults are drawn by `raft_schedule.py`.

The network is `raft_network.py`.
"""

from __future__ import annotations

import heapq
import random
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from node.journal import passport
from node.journal.errors import JournalDamaged
from node.journal.journal import Journal
from node.journal.limits import JournalLimits
from node.journal.passport import Keeper
from node.journal.recovery.recovery_marker import MARKER_NAME
from node.peers.message import MessageRefused
from node.raft.admission import MustRecover
from node.raft.config import Outcome, RaftConfig
from node.raft.environment import RaftEnvironment, RaftWorkers
from node.raft.errors import RaftStopped
from node.raft.node import RaftNode
from node.testing.disk import Image, PowerCut, ProcessDisk, SimStorage
from tests.support import raft_probe
from tests.support.raft_checks import Checks
from tests.support.raft_network import Frame, Network, SimTransport
from tests.support.raft_state import SKIPPED, SimReplay, SimState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from node.journal.skips import Skip

CLUSTER = b"simulated-world!"
SMALL_JOURNAL = JournalLimits(segment_bytes=16_384, cache_bytes=4_096)


@dataclass(slots=True)
class Submitted:
    """A submit and every outcome it got (one, if all is well)."""

    payload: bytes
    node: str
    at: float
    outcomes: list[tuple[Outcome, int]] = field(default_factory=list)


class SimOffload:
    """The work of a worker thread, in virtual time: `sync_seconds` of its machine on the average.

    The bytes are on the disk at the beginning of that time or at its end, and no caller is
    notified before its end: a process that dies meanwhile finds either.
    """

    def __init__(self, world: World, node: SimNode) -> None:
        self._world = world
        self._node = node
        self._incarnation = node.incarnation

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        rng = self._world.rng
        at_once = rng.random() < 0.5
        if at_once:
            self._do(work)

        def end() -> None:
            node = self._node
            if not node.alive or node.incarnation != self._incarnation:
                return
            if node.paused or node.hangs:
                self._world.after(0.01, end)
                return
            if not at_once:
                self._do(work)
            node.touched = True
            done(None)

        self._world.after(rng.uniform(0, 2 * self._node.sync_seconds), end)

    def _do(self, work: Callable[[], None]) -> None:
        self._node.beside_loop = self._node.touched = True
        work()  # A job keeps its error.
        self._node.beside_loop = False

    def close(self) -> None:
        """Nothing runs between two steps of the world."""


class SimNode:
    """A host: a disk that stays, and processes that come and go on it."""

    state_class = SimState

    def __init__(self, world: World, name: str, config: RaftConfig) -> None:
        self._world = world
        self.name = name
        self.config = config
        self.storage = SimStorage(name)
        self.rate = 1.0
        self.offset = 0.0
        self.incarnation = 0
        self.paused = False
        self.touched = True
        """Whether anything was done to it since the checks looked at it: whatever can change what
        they see of it says so here."""
        self.transport: SimTransport | None = None
        self.journal: Journal | None = None
        self._node: RaftNode | None = None
        self._inbox: list[Frame] = []
        self._turn_at: float | None = None
        self._turn_number = 0
        self.stopped: RaftStopped | None = None
        self.state = self._new_state()
        self.roles: list[tuple[str, int]] = []
        self.node_class: type[RaftNode] = RaftNode
        self.sync_seconds = 0.0
        self.hangs = False
        """Whether nothing comes back that its disk is asked for off the loop."""
        self.beside_loop = False
        """Whether what the disk does just now is done on another thread than the loop's."""
        self.may_stop = False
        self._disk_clock = 0.0
        self.apply_hook: Callable[[bytes], None] | None = None
        self.journal_hook: Callable[[Journal], None] | None = None
        self.refused = 0
        self.unreadable = False
        self.half_changed = False
        self.replays_as: int | None = None
        self.set_back_to_image = False
        """Whether its disk is an older one, which no member has found yet."""
        self.lost = False
        """Whether its journal is damaged or gone: its operator starts it with --recover next."""

    def _new_state(self) -> SimState:
        return self.state_class(self._read, self._restored)

    def _restored(self, applied: list[tuple[int, int, bytes]]) -> None:
        if self.unreadable:
            raise ValueError("a state that this program cannot read")
        self._world.checks.restored(self, applied)

    def _read(self, index: int) -> memoryview:
        assert self.journal is not None
        return memoryview(self.journal.log.read(index))[1:]

    @property
    def applied(self) -> list[tuple[int, int, bytes]]:
        """Entries that this process has applied, or has from a snapshot."""
        return self.state.applied

    @property
    def alive(self) -> bool:
        """Whether a process runs on this machine (paused counts)."""
        return self._node is not None

    @property
    def runs(self) -> bool:
        """Whether a process runs that takes turns."""
        return self.alive and not self.paused and self.stopped is None

    @property
    def node(self) -> RaftNode:
        """The running process."""
        assert self._node is not None, f"{self.name} is down"
        return self._node

    def clock(self) -> float:
        """This machine's clock: another offset and another rate than the world's."""
        return self.offset + self.rate * self._world.now

    # --- life ---

    def start(self) -> None:
        """A new process on the same disk."""
        self.touched = True
        self.incarnation += 1
        self.paused = False
        self.stopped = None
        self.may_stop = False
        self.half_changed = False
        self.state = self._new_state()
        self._inbox = []
        recover = f"20260101T{self.incarnation:06d}Z" if self.lost else None
        self.journal = self.open_journal(self.storage.for_process(), recover)
        self.lost = False
        if self.journal_hook is not None:
            self.journal_hook(self.journal)
        self.transport = SimTransport(self._world.network, self)
        self._node = self.node_class(
            self.config,
            RaftEnvironment(
                journal=self.journal,
                transport=self.transport,
                clock=self.clock,
                rng=random.Random(self._world.rng.getrandbits(64)),
                apply=self._apply,
                skip=self._skip,
                before_sync=lambda: None,
                wake=self.wake,
                on_role=lambda role, term: self.roles.append((role, term)),
                source=self.state,
                replay=lambda: SimReplay(self.state_class(self._read, lambda _: None), self),
                workers=RaftWorkers(
                    syncs=SimOffload(self._world, self),
                    snapshots=SimOffload(self._world, self),
                    reads=SimOffload(self._world, self),
                    notes=SimOffload(self._world, self),
                ),
            ),
        )
        self.wake()
        for other in self._world.nodes:
            if other != self.name:
                self._world.network.reconnect(self.name, other, 0.01)

    def open_journal(
        self, storage: SimStorage | ProcessDisk, recover: str | None = None
    ) -> Journal:
        """The journal on this machine's disk, or on a copy of it."""
        return Journal.open(
            storage,
            cluster_id=CLUSTER,
            node=self.name,
            limits=SMALL_JOURNAL,
            clock=self._read_disk_clock,
            recover=recover,
            keeper=self._keeper() if self._world.passports else None,
        )

    def _keeper(self) -> Keeper:
        """Draws ids that no other process of this world has."""
        entropy = random.Random(f"{self._world.seed} {self.name} {self.incarnation}")
        stamp = f"20260101T{self.incarnation:06d}Z"
        return Keeper(entropy.randbytes, lambda: stamp, begins=self._begins)

    @property
    def _begins(self) -> bool:
        """Whether an empty folder is a cluster of one that begins: not once it has had others, for
        its operator lets its file name them then."""
        return not self.config.peers and len(self._world.nodes) == 1

    @property
    def recovering(self) -> bool:
        """Whether its journal is lost, or it has not got back what was in it."""
        lost = self.lost or self.set_back_to_image
        return lost or MARKER_NAME in self.storage.listdir() or self.waiting

    @property
    def waiting(self) -> bool:
        """Whether its journal may stand for one that is lost."""
        papers = passport.read(self.storage) if self._world.passports else None
        return papers is not None and not papers.begun

    def wipe(self) -> None:
        """End the process and empty its folder; its operator starts it as ever."""
        self.lose_disk()
        self.lost = False

    def set_back(self, image: Image, *, copied: bool = False) -> None:
        """End the process and put an older image of its disk back, or a copy of its files."""
        self.kill()
        self.touched = True
        self._world.checks.lost(self)
        self.storage.restore(image, copied=copied)
        self.set_back_to_image = True

    def lose_lies(self) -> None:
        """End the process with the power, and with anything that its disk acknowledged while it
        lied; its operator starts it again, with --recover where it asks for that."""
        self._world.checks.gave_up(self)  # What it promised by counts until it has a voice again.
        if self._world.rng.random() < 0.5:  # A cache that is empty: nothing of it, torn or whole.
            self.storage.restore(self.storage.image())
        self.kill(power=True, checked=False)
        self.storage.lying = False
        self.set_back_to_image = True
        try:
            self.start()
        except JournalDamaged:
            self._world.happened("damaged by a lie")
            self.refuse_to_start()
            self.lost = True
            self.start()

    def lose_disk(self, *, damaged: bool = False) -> None:
        """End the process; its files are gone, or one in their middle cannot be read any more."""
        self.kill()
        self.touched = True
        self._world.checks.lost(self)
        if damaged:
            name = next(name for name in self.storage.listdir() if name.endswith(".segment"))
            content = bytearray(self.storage.content(name))
            content[20] ^= 1
            self.storage.replace(name, bytes(content))
        else:
            self.storage.wipe()
        self.lost = True

    def _read_disk_clock(self) -> float:
        """Read before and after each sync: by so much later."""
        self._disk_clock += self.sync_seconds
        return self._disk_clock

    def kill(self, *, power: bool = False, checked: bool = True) -> None:
        """End the process: by a signal, or with the power and what was not synced. `checked`: its
        journal is what it promised by."""
        if self._node is None:
            return
        self.touched = True
        raft_probe.abandon(self._node)
        self._node = None
        self.journal = None
        self.transport = None
        if power:
            self.storage.power_loss(self._world.rng)
        else:
            self.storage.crash()
        if checked:
            self._world.checks.died(self)
        for other in self._world.nodes:
            if other != self.name:
                self._world.network.break_link(self.name, other)

    def refuse_to_start(self) -> None:
        """A start raised: the process is gone, and with it what it had open."""
        self.touched = True
        self.journal = None
        self.transport = None
        self.storage.crash()

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: frames wait."""
        self.paused = self.touched = True

    def resume(self) -> None:
        """Go on with everything that waited."""
        self.touched = True
        self.paused = False
        self._world.checks.resumed(self)
        inbox, self._inbox = self._inbox, []
        for frame in inbox:
            self.receive(frame)
        self.wake()

    # --- work ---

    def wake(self) -> None:
        """Schedule a turn at this instant, once: who asks for it has been asked for something."""
        self.touched = True
        self._schedule(self._world.now)

    def _schedule(self, at: float) -> None:
        if self._turn_at is not None and self._turn_at <= at:
            return
        self._turn_at = at
        self._turn_number += 1
        number = self._turn_number
        self._world.at(at, lambda: self._turn(number))

    def _turn(self, number: int) -> None:
        if number != self._turn_number:
            return
        self._turn_at = None
        if self._node is None or self.paused or self.stopped is not None:
            return
        self.touched = True
        try:
            delay = self._node.turn()
        except RaftStopped as stopped:
            self._end(stopped)
            return
        # A turn takes time on a real machine: one that asks for the next at once gets it later.
        self._schedule(self._world.now + max(delay, 0.0002) / self.rate)

    def _end(self, stopped: RaftStopped) -> None:
        if isinstance(stopped, MustRecover):
            self._world.happened("gave up")
            self.set_back_to_image = False
            self._world.checks.gave_up(self)
            self.kill(checked=False)
            self.start()
            return
        cause: BaseException | None = stopped
        while cause is not None:
            if isinstance(cause, PowerCut):
                self.kill(power=True)
                return
            cause = cause.__cause__
        self.stopped = stopped
        self._world.stopped(self, stopped)

    def receive(self, frame: Frame) -> None:
        """A frame arrives at this machine."""
        if self._node is None or self.transport is None:
            return
        if self.paused:
            self._inbox.append(frame)
            return
        self.touched = True
        self._world.network.delivered += 1
        self._world.note(f"{frame.source}>{self.name} {zlib.crc32(frame.content):x}")
        try:
            self.transport.received(frame)
        except MessageRefused:
            self.refused += 1

    def _apply(self, index: int, term: int, payload: memoryview) -> None:
        content = bytes(payload)
        if self.half_changed:
            self._world.checks.fail(f"{self.name} applied {index} after an apply had raised")
        if self.apply_hook is not None:
            self.half_changed = True
            self.apply_hook(content)
            self.half_changed = False
        self.state.applied.append((index, term, content))
        self._world.checks.applied(self, index, term, content)

    def _skip(self, index: int, term: int, payload: memoryview, skip: Skip) -> None:
        self.state.applied.append((index, term, SKIPPED))
        self._world.checks.applied(self, index, term, SKIPPED)


class World:
    """Everything of one simulated cluster. `seed` decides all of it."""

    def __init__(
        self,
        names: Iterable[str] = "abc",
        *,
        seed: int = 0,
        node_class: type[RaftNode] = RaftNode,
        drifting: bool = False,
        passports: bool = False,
        **settings: Any,
    ) -> None:
        """`passports`: journals have an identity, and members judge each other's."""
        self.seed = seed
        self.passports = passports
        self.rng = random.Random(seed)
        self.now = 0.0
        self.trace = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.submitted: list[Submitted] = []
        self.expect_stop = False
        self.counts: dict[str, int] = {}
        self.network = Network(self)
        self.checks = Checks(self)
        self.nodes: dict[str, SimNode] = {}
        members = sorted(names)
        for name in members:
            config = RaftConfig(
                name=name,
                peers={other: ("127.0.0.1", 1) for other in members if other != name},
                bind=("127.0.0.1", 1),
                cluster_id=CLUSTER,
                **settings,
            )
            self._add(name, config, node_class, drifting=drifting)
        self._make = partial(self._join, settings, node_class, drifting=drifting)

    def _add(
        self, name: str, config: RaftConfig, node_class: type[RaftNode], *, drifting: bool
    ) -> SimNode:
        node = SimNode(self, name, config)
        node.node_class = node_class
        if drifting:
            node.rate = self.rng.uniform(0.98, 1.02)
            node.offset = self.rng.uniform(0, 1e5)
        self.nodes[name] = node
        return node

    def join(self, name: str, peers: Iterable[str]) -> SimNode:
        """A machine that is new: its operator points it at some of the members, and starts it."""
        return self._make(name, peers)

    def _join(
        self,
        settings: dict[str, Any],
        node_class: type[RaftNode],
        name: str,
        peers: Iterable[str],
        *,
        drifting: bool,
    ) -> SimNode:
        config = RaftConfig(
            name=name,
            peers=dict.fromkeys(peers, ("127.0.0.1", 1)),
            bind=("127.0.0.1", 1),
            cluster_id=CLUSTER,
            joins=True,
            **settings,
        )
        node = self._add(name, config, node_class, drifting=drifting)
        node.start()
        return node

    # --- time ---

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at an instant; in the order of asking where instants are equal."""
        self._count += 1
        heapq.heappush(self._heap, (time, self._count, action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something `delay` seconds from now."""
        self.at(self.now + delay, action)

    def run(self, seconds: float) -> None:
        """Run the world for a time."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self._step()
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Run the world until a condition holds; raise AssertionError after `seconds`."""
        end = self.now + seconds
        while not condition():
            due = self._heap[0][0] if self._heap else float("inf")
            assert due <= end, f"seed {self.seed}: not so after {seconds} s (at {self.now:.3f})"
            self._step()

    def _step(self) -> None:
        self.now, _, action = heapq.heappop(self._heap)
        action()
        self.checks.after_step()

    def note(self, event: str) -> None:
        """Part of the trace that proves two runs equal."""
        self.trace = zlib.crc32(f"{self.now!r} {event}".encode(), self.trace)

    def happened(self, what: str) -> None:
        """Count something that should happen sometimes."""
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- nodes ---

    def start(self) -> World:
        """Start every node that is down."""
        for node in self.nodes.values():
            if not node.alive:
                node.start()
        self.network.connect_all()
        return self

    def stopped(self, node: SimNode, stopped: RaftStopped) -> None:
        """A node stopped for good, which only some tests expect."""
        if node.may_stop:
            node.kill()  # Its disk failed: its operator repairs it and starts it again.
            return
        assert self.expect_stop, f"seed {self.seed}: {node.name} stopped: {stopped}"

    @property
    def leaders(self) -> list[SimNode]:
        """Everyone who believes to lead, newest term first."""
        found = [n for n in self.nodes.values() if n.alive and n.node.role == "leader"]
        return sorted(found, key=lambda n: -n.node.term)

    def elect(self, name: str | None = None) -> SimNode:
        """Wait for a leader whose owner knows; where `name` is given, see that it becomes it.

        The others are given later deadlines: an election is not forced, it is arranged.
        """
        if name is not None:
            for node in self.nodes.values():
                if node.alive:
                    core = raft_probe.core(node.node)
                    soon = node.clock() + (0.61 if node.name == name else 3.0)
                    core.election_deadline = soon

        def elected() -> bool:
            if not self.leaders or not self.leaders[0].node.is_leader:
                return False
            return name in (None, self.leaders[0].name)

        self.run_until(elected)
        return self.leaders[0]

    def submit(self, node: SimNode | str, payload: bytes, *, raising: bool = False) -> Submitted:
        """Submit on one node and keep what becomes of it; `raising`: its callback raises."""
        target = self.nodes[node] if isinstance(node, str) else node
        submitted = Submitted(payload, target.name, self.now)
        self.submitted.append(submitted)

        def done(outcome: Outcome, index: int) -> None:
            submitted.outcomes.append((outcome, index))
            if raising:
                raise ZeroDivisionError("the owner's mistake")

        target.node.submit([payload], done)
        return submitted

    def payload(self, size: int = 1) -> bytes:
        """A payload that no other submit of this world has, of `size` bytes or a little more."""
        return b"%d " % len(self.submitted) + b"." * (size - 1)

    def commit(self, node: SimNode, count: int, size: int = 1) -> list[Submitted]:
        """Submit `count` entries on a leader and wait until all are committed."""
        found = [self.submit(node, self.payload(size)) for _ in range(count)]
        self.run_until(lambda: all(s.outcomes for s in found))
        assert all(s.outcomes[0][0] is Outcome.COMMITTED for s in found)
        return found

    def members(self) -> list[SimNode]:
        """The members by the newest leader, learners among them; all where none leads."""
        if not self.leaders:
            return list(self.nodes.values())
        return [self.nodes[one.name] for one in self.leaders[0].node.configuration.members]

    def converged(self) -> bool:
        """Whether all nodes have applied all of one log."""
        ends = {
            (n.node.last_index, n.node.applied_index, n.node.commit_index)
            for n in self.members()
            if n.alive
        }
        return len(ends) == 1 and len(set(next(iter(ends)))) == 1
