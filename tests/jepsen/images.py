"""Faults of what a member's disk holds: an older copy, an older image, a tail that never was there.

Owns those nemeses, beside `insides` (a folder that is wiped) and `nemeses` (one that is damaged):
here all files are whole, and lack what their member has promised. Members that saw more are up. A
disk that differs from the others, by its speed or its room, is here as well. Needs no rights.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.journal.segments import parse_segment_name
from tests.jepsen.cluster import Cluster, RunFailed, until
from tests.jepsen.nemeses import Fault, one_of

KEPT = ("lock", "lost+found")
"""Names that stay where a disk is set back in place: by its lock file a node knows a copy."""

RECOVERED_S = 60.0
"""From the start of a member that lacks something until it has it back: it is found, gives its
journal up, starts again, asks all others, and waits for a leader of a later term."""

TAIL_BYTES = 256
"""The least that a lying disk forgets; a record of an entry is shorter, as a rule."""

SYNC_SECONDS = (0.0, 0.02, 0.08)
"""Durations of a sync on the disks of one cluster, at most 80 ms more on one than on another."""


def copy_of(data: Path, to: Path) -> None:
    """Copy what is in a folder, but for what stays."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(data, to, ignore=shutil.ignore_patterns(*KEPT))


def empty(data: Path) -> None:
    """Take away what is in a folder, but for what stays."""
    for path in data.iterdir():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def set_back(data: Path, image: Path) -> None:
    """Give a folder the content of an image, in place: as a disk that is set back."""
    empty(data)
    shutil.copytree(image, data, dirs_exist_ok=True)


def forget_tail(data: Path, rng: random.Random) -> int:
    """Take the end of the newest segment away, as a disk that acknowledged syncs and kept nothing
    of them; returns the bytes. It ends amid a record then, or behind one: a torn write. The mark
    that says how far the log was synced is of the same disk, and gone too."""
    (data / "synced").unlink(missing_ok=True)
    path = max(path for path in data.iterdir() if parse_segment_name(path.name))
    content = path.read_bytes()
    written = len(content.rstrip(b"\0"))
    size = min(written // 2, rng.randint(TAIL_BYTES, 64 * TAIL_BYTES))
    path.write_bytes(content[: written - size] + bytes(len(content) - written + size))
    return size


@asynccontextmanager
async def restore(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """An operator puts an older copy of a member's files back, or the image of its disk."""
    node, copied = one_of(cluster, rng), rng.random() < 0.5
    data, image = cluster.data[node], cluster.folder / "images" / node
    cluster.signal(node, signal.SIGSTOP)
    before = int(cluster.views.get(node, {}).get("last", 0))
    copy_of(data, image)
    cluster.signal(node, signal.SIGCONT)
    yield [node]
    lacks = int(cluster.views.get(node, {}).get("last", 0)) > before
    await cluster.kill(node)
    if copied:
        (data / "lock").unlink()
    set_back(data, image)
    aside = await back(cluster, node, must=copied or lacks)
    cluster.add("ok", "restored", "nemesis", node=node, copied=copied, aside=aside)


@asynccontextmanager
async def lies(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A disk has acknowledged syncs and forgets what they were of, with the power of its node."""
    node = one_of(cluster, rng)
    yield [node]
    await cluster.kill(node)
    size = forget_tail(cluster.data[node], rng)
    aside = await back(cluster, node, must=False)
    cluster.add("ok", "lied", "nemesis", node=node, bytes=size, aside=aside)


async def back(cluster: Cluster, node: str, *, must: bool) -> list[str]:
    """Start a member that may lack something, as a service does, until it is whole; returns the
    files that it has set aside. Raises RunFailed where it is not, or where it did not give up a
    journal that it `must`."""
    data = cluster.data[node]
    before = {path.name for path in data.glob("*.lost-*")}
    level = max([int(view["commit"]) for view in cluster.views.values()], default=0)
    cluster.views.pop(node, None)

    def whole() -> bool:
        if not cluster.runs(node):
            cluster.start_node(node)
        aside = {path.name for path in data.glob("*.lost-*")} - before
        recovering = (data / "recovering").exists() or (must and not aside)
        return not recovering and _counts(cluster, node, level)

    if not await until(whole, RECOVERED_S):
        said = cluster.children[node].last_lines(1)
        raise RunFailed(f"{node} lacks what it had and does not get it back: {said}")
    return sorted({path.name for path in data.glob("*.lost-*")} - before)


def _counts(cluster: Cluster, node: str, level: int) -> bool:
    """Whether a member has all entries up to there, and the leader, which has judged it, counts
    it."""
    view, leader = cluster.views.get(node), cluster.leading()
    if view is None or leader is None or int(view["applied"]) < level:
        return False
    rows = cluster.views[leader]["peers"] if leader in cluster.views else []
    row = next((one for one in rows if one["name"] == node), None)
    if row is None:
        return leader == node
    return bool(row["connected"] and row["counted"]) and int(row["match"]) >= level


@asynccontextmanager
async def unequal(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """The disks of the nodes take each another time for a sync."""
    slowest = rng.choice(cluster.names)
    for node in cluster.names:
        seconds = max(SYNC_SECONDS) if node == slowest else rng.choice(SYNC_SECONDS[:2])
        cluster.control(node, sync_seconds=seconds)
    yield cluster.names
    for node in cluster.names:
        cluster.control(node)


FAULTS = {
    one.name: one
    for one in (
        Fault("restore", restore, alone=True),
        Fault("lies", lies, alone=True),
        Fault("unequal", unequal, slow_links=True),
    )
}
