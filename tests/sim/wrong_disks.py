"""Disks that are lost, copied or set back, that rot, and that lie, beneath a simulated cluster.

Owns what is done to a disk, when that may be done, and until when it is in doubt. One disk at a
time is wrong, and only while all other members are whole: what more of them have lost is no promise
(raft.md 2). While a disk that was set back is not judged yet, nothing else goes wrong, for whether
those that saw more are up is what its safety rests on. Must not know how a member finds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from node.broker.members import nodes_of
from node.raft import JournalDamaged
from node.roster import Roster
from tests.support import raft_probe

if TYPE_CHECKING:
    from node.raft import RaftNode
    from node.testing.disk import Image
    from tests.sim.hosts import Host
    from tests.sim.world import World

WIPE_LEAST = 3
"""Voters of a group of which one may lose its disk: fewer have to be started with `--recover`,
or are let in empty where the other one is whole."""

SCRUB_SECONDS = 2.0
"""Until the scrub of a disk with a flipped bit begins, at most: in production it is a day."""

HELPS = frozenset({"restart", "resume", "heal", "fast_disk", "disk_roomy"})
"""Faults that make nothing worse."""

ENDS = frozenset(
    {"kill", "kill_leader", "power", "power_leader", "power_in_turn", "power_all"}
    | {"disk_fails", "disk_full", "disk_small"}
)
"""Faults that end a node whose disk must not be read, or lose its cache, just now."""

ROOM_BYTES = (0, 1_000, 4_000, 20_000)
"""Room that a disk has left as it gets small: from none to that for a few snapshots."""

ROOM = frozenset({"disk_small", "disk_roomy"})
"""Faults after which a disk has all that it had: they may come to any, at any time."""

LOOK_SECONDS = 0.0005
"""Between two looks at who counts: less than a leader needs to send what a member lacks."""

REPAIRED_SECONDS = 20.0
"""For a damaged entry to be found and mended once all is healed."""


class Rot(NamedTuple):
    """A flipped bit in the record of an entry, which begins at `offset` of a file; `at` is the byte
    in question, `content` the whole file as it is then."""

    entry: int
    file: str
    offset: int
    at: int
    content: bytes


class Disks:
    """The damage to the disks of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rng = world.chance("disks")
        self._images: dict[str, Image] = {}
        self.rotten: dict[str, Rot] = {}
        """The hosts with a flipped bit that is not known to be mended."""
        self.in_doubt: str | None = None
        """The host whose disk was set back, until its node is known to have all or to lack some."""

    def act(self, kind: str, host: Host) -> None:
        """Do what a fault says, where it may be done."""
        if kind in ROOM or (host.alive and self._quiet(host) is not None):
            getattr(self, kind)(host)

    def liars(self) -> list[Host]:
        """The hosts whose disks lie; at most one."""
        return [host for host in self._world.hosts.values() if host.storage.lying]

    @property
    def frail(self) -> set[str]:
        """The hosts whose node must not end now: their disks would lose more than they are to."""
        doubted = {self.in_doubt} if self.in_doubt else set()
        return {*self.rotten} | doubted | {liar.name for liar in self.liars()}

    def may_act(self, kind: str, host: Host | None) -> bool:
        """Whether a fault may come now: not while a disk that is set back is judged, nor an end of
        a node by which its disk would lose more than it is meant to."""
        if kind in HELPS or kind.startswith("client"):
            return True
        if self.in_doubt is not None and not self._lacks(self._world.hosts[self.in_doubt]):
            self.in_doubt = None
        frail = self.frail
        ends = frail and (kind == "power_all" or (host is not None and host.name in frail))
        if self.in_doubt is None and not (ends and kind in ENDS):
            return True
        self._world.happened("fault held off")
        return False

    def _lacks(self, host: Host) -> bool:
        return self._world.checks.lacks(host)

    # --- when ---

    def _quiet(self, host: Host) -> RaftNode | None:
        """The leader's Raft, where this voter's disk may go wrong: all others are up, whole, and in
        reach of each other."""
        world = self._world
        raft = world.leading()
        if raft is None or raft.configuration.wanted or not raft.configuration_committed:
            return None
        names = [one.name for one in raft.configuration.voters]
        if host.name not in names or len(names) < WIPE_LEAST or world.network.cuts:
            return None
        if self.rotten or any(map(self._lacks, world.hosts.values())):
            return None
        if any(liar is not host for liar in self.liars()) or self.in_doubt:
            return None
        return raft if all(self._whole(world.hosts[name]) for name in names) else None

    def _whole(self, host: Host) -> bool:
        raft = None if host.running is None else raft_probe.raft_of(host.running)
        return (
            raft is not None
            and raft.waits_for() is None
            and host.storage.hook is None
            and host.storage.capacity_bytes is None
            and (raft.is_leader or raft.leader is not None)
        )

    # --- what ---

    def disk_image(self, host: Host) -> None:
        """Keep what is on the platter now."""
        self._images[host.name] = host.storage.image()

    def disk_lies(self, host: Host) -> None:
        """From now on syncs are acknowledged, and nothing is brought to the platter."""
        if not self.liars():
            self._world.happened("disk lies")
            host.storage.lying = True

    def disk_wiped(self, host: Host) -> None:
        """An empty disk in the place of the one that it had; it starts as ever."""
        self._lose(host)
        host.storage.wipe()
        self._name_others(host)
        host.start()
        self._watch(host)

    def disk_copied(self, host: Host) -> None:
        """The files as they are now, on another disk."""
        self._lose(host)
        host.storage.restore(host.storage.image(), copied=True)
        self._doubt(host)

    def disk_set_back(self, host: Host) -> None:
        """An older image of the disk."""
        image = self._images.pop(host.name, None)
        if image is not None:
            self._lose(host)
            host.storage.restore(image)
            self._doubt(host)

    def disk_was_lying(self, host: Host) -> None:
        """The power fails under a disk that has lied: of what it has acknowledged, some or all of
        the newest is gone."""
        if not host.storage.lying:
            return
        self._lose(host)
        if self.rng.random() < 0.5:  # A cache that is empty: nothing of it, torn or whole.
            host.storage.restore(host.storage.image())
        host.storage.power_loss(self.rng)
        host.storage.lying = False
        self._doubt(host)

    def disk_small(self, host: Host) -> None:
        """Something else fills the disk, or nearly: what it holds stays, what is written need not
        fit. Its node goes on, or ends and is started again and again."""
        self._world.happened("disk small")
        host.disk_was_small = True
        host.storage.fill(self.rng.choice(ROOM_BYTES))
        if self.rng.random() < 0.5:
            host.kill()
            host.start()

    def disk_roomy(self, host: Host) -> None:
        """There is room on the disk again."""
        host.storage.capacity_bytes = None

    def _lose(self, host: Host) -> None:
        """End the node; what it promised stands, though its disk will not have it."""
        self._world.happened("disk went wrong")
        self._images.pop(host.name, None)
        self._world.checks.loses(host)
        host.kill()

    def _doubt(self, host: Host) -> None:
        self.in_doubt = host.name
        host.start()
        self._watch(host)

    def _watch(self, host: Host) -> None:
        """Look all the time who counts, as long as a host lacks what it has promised."""
        self._world.checks.counts()
        if self._lacks(host) and not self._world.healed:
            self._world.loop.after(LOOK_SECONDS, self._watch, host)

    def _name_others(self, host: Host) -> None:
        """The operator of an empty machine has its file name the members of today."""
        newest = self._world.checks.newest
        if newest is None or host.config.join:
            return
        me = host.config.node(host.name)
        others = (one for one in nodes_of(newest, Roster(())) if one.name != host.name)
        host.rewrite(replace(host.config, nodes=(me, *others)))

    # --- rot ---

    def disk_rots(self, host: Host) -> None:
        """Flip a bit of a record of the log, or of a body from before it, under the node."""
        if not host.storage.lying:
            rot = self.rotten[host.name] = self._flipped(host)
            host.storage.rot(rot.file, rot.content)
            raft = raft_probe.running_raft(host.node)
            raft_probe.scrub_at(raft, self.rng.uniform(0.0, SCRUB_SECONDS))

    def disk_rots_cold(self, host: Host) -> None:
        """The same while the node is down: it refuses its journal as it starts, or cuts it."""
        rot = self._flipped(host)
        self._lose(host)
        host.storage.replace(rot.file, rot.content)
        self._doubt(host)

    def _flipped(self, host: Host) -> Rot:
        raft = raft_probe.running_raft(host.node)
        index = self.rng.choice(raft_probe.whole_entries(raft))
        name, offset, size = raft_probe.record_of(raft, index)
        at = offset + self.rng.randrange(size)
        content = bytearray(host.storage.content(name))
        content[at] ^= 1 << self.rng.randrange(8)
        self._world.happened("disk rots")
        self._world.note(f"{host.name} has a flipped bit in {name} at {at}, entry {index}")
        return Rot(index, name, offset, at, bytes(content))

    def ended(self, host: Host, error: Exception) -> bool:
        """Whether a node that ended did so by a wrong disk, and was started again: one that refuses
        a damaged journal is started with --recover."""
        if not isinstance(error, JournalDamaged) or self.in_doubt != host.name:
            return False
        self._world.happened("damaged journal refused")
        host.kill()
        host.recovers = True
        self._name_others(host)
        host.start()
        return True

    def mended(self) -> bool:
        """Whether each flipped bit of a member was found by a scrub, and is as it was again."""
        for name, rot in sorted(self.rotten.items()):
            host = self._world.hosts[name]
            if name not in self._world.checks.members:
                del self.rotten[name]  # It was removed, so no member mends it, nor needs it.
                self._world.happened("rot removed")
                continue
            raft = None if host.running is None else raft_probe.raft_of(host.running)
            if raft is None:
                return False
            raft_probe.scrub_at(raft, 0.0)  # Instead of its rest until the next day.
            if raft.status().scrub.passes_total and self._is_mended(host, raft, rot):
                del self.rotten[name]
                self._world.happened("rot mended")
        return not self.rotten

    @staticmethod
    def _is_mended(host: Host, raft: RaftNode, rot: Rot) -> bool:
        """Whether the record is right; or read by no one, for it was settled or lies elsewhere; or
        its file waits to be replaced, for it was damaged where entries begin and end."""
        if rot.file not in host.storage.listdir() or rot.file in raft_probe.doubts(raft):
            return True
        if host.storage.content(rot.file)[rot.at] != rot.content[rot.at]:
            return True
        return raft_probe.record_of(raft, rot.entry)[:2] != (rot.file, rot.offset)
