"""Real nodes under strace: what an acknowledgement or a vote stands on was synced before it left.

Each node's system calls are read in order. Records are found in what it wrote to its segments and
count once an fdatasync that began after the write has returned; frames are found in what it sent
to and got from its peers. A bug that acknowledges before the sync has to be seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fifo
import fifo.client
from node.config import to_toml
from node.journal import records
from node.peers.frames import LENGTHS, decode
from tests.support import syscalls
from tests.support.cluster import loopback_config, passed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.config import ClusterConfig

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(syscalls.why_not() is not None, reason=str(syscalls.why_not())),
]

BATCHES = 15
"""Published one after the other, each confirmed: as many acknowledgements and commits at least."""
READY_SECONDS = 60.0
"""A node under strace starts several times slower."""


@dataclass(slots=True)
class Disk:
    """Contents of a node's segments, and the durable part of them."""

    written: dict[str, list[tuple[int, int, int, bytes]]] = field(default_factory=dict)
    covered: dict[int, list[tuple[int, int, int, bytes]]] = field(default_factory=dict)
    entries: set[int] = field(default_factory=set)
    votes: set[tuple[int, bytes]] = field(default_factory=set)
    synced_index: int = 0

    def see(self, moment: str, call: syscalls.Call) -> None:
        """A call on a segment."""
        name = call.target.removesuffix(".tmp")
        if call.name in syscalls.SYNCS:
            if moment == "begins":
                self.covered[id(call)] = self.written.pop(name, [])
            else:
                assert call.result == 0
                self._durable(self.covered.pop(id(call)))
        elif moment == "returns":
            self.written.setdefault(name, []).extend(records_in(call.data))

    def _durable(self, found: list[tuple[int, int, int, bytes]]) -> None:
        for kind, term, index, payload in found:
            if kind == records.ENTRY:
                self.entries.add(index)
            elif kind == records.HARD_STATE and payload:
                self.votes.add((term, payload))
        while self.synced_index + 1 in self.entries:
            self.synced_index += 1


def records_in(content: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(kind, term, index, payload) of every record, read by docs/storage.md alone. Room that a
    group takes along is none."""
    at = int.from_bytes(content[10:12], "little") if content.startswith(b"fifojrnl") else 0
    while at < len(content) and content[at] != 0:
        assert content[at : at + 2] == b"\xf1\xf0", "a record begins here"
        number = [int.from_bytes(content[at + b : at + e], "little") for b, e in FIELDS]
        kind, size, term, index = number
        at += records.RECORD_BYTES
        yield kind, term, index, content[at : at + size]
        at += size


FIELDS = ((2, 3), (4, 8), (16, 24), (24, 32))
"""Kind, size of the payload, term and index in a record's head."""


@dataclass(slots=True)
class Stream:
    """A connection in one direction: bytes in, messages out."""

    held: bytearray = field(default_factory=bytearray)

    def messages(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that have begun, each when it is whole."""
        self.held += data
        while len(self.held) >= LENGTHS.size:
            header, raw = LENGTHS.unpack_from(self.held)
            end = LENGTHS.size + header + raw
            if len(self.held) < end:
                return
            frame = memoryview(bytes(self.held[LENGTHS.size : end]))
            del self.held[:end]
            yield decode(frame[:header], frame[header:])


@dataclass(slots=True)
class Judge:
    """Promises of one node against its disk. `early` are those that it could not make yet."""

    peers: set[str]
    disk: Disk = field(default_factory=Disk)
    streams: dict[tuple[str, str], Stream] = field(default_factory=dict)
    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    told_committed: int = 1
    seen: dict[str, int] = field(default_factory=dict)
    early: list[str] = field(default_factory=list)

    def read(self, path: Path) -> Judge:
        """All of a trace."""
        with path.open(errors="replace") as lines:
            for moment, call in syscalls.events(lines):
                if ".segment" in call.target:
                    self.disk.see(moment, call)
                elif call.target.startswith("TCP:") and self._is_peer(call.target):
                    self._traffic(moment, call)
        return self

    def _is_peer(self, target: str) -> bool:
        return any(port in target for port in self.peers)

    def _traffic(self, moment: str, call: syscalls.Call) -> None:
        out = call.name in syscalls.WRITES
        # A write counts when it begins, for its bytes may be gone before it returns.
        if moment != ("begins" if out else "returns"):
            return
        stream = self.streams.setdefault((call.target, "out" if out else "in"), Stream())
        for message in stream.messages(call.data):
            if out:
                self._sent(message)
            elif message["type"] == "append_entries":
                self.told_committed = max(self.told_committed, message["commit_index"])
            elif message["type"] == "next_node_idx" and message["success"]:
                told = message["term"], message["next_node_idx"] - 1
                self.acknowledged[call.target] = max(told, self.acknowledged.get(call.target, told))

    def _sent(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "next_node_idx" and message["success"]:
            self._hold(kind, message["next_node_idx"] - 1 <= self.disk.synced_index, message)
        elif kind == "response_vote":
            self._hold(kind, any(term == message["term"] for term, _ in self.disk.votes), message)
        elif kind == "append_entries" and message["commit_index"] > self.told_committed:
            commit = message["commit_index"]
            term = message["term"]
            copies = int(self.disk.synced_index >= commit)
            copies += sum(
                of == term and index >= commit for of, index in self.acknowledged.values()
            )
            self._hold("commit", copies >= 2, message)

    def _hold(self, what: str, true: bool, message: dict[str, Any]) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
        if not true:
            self.early.append(f"{what} with {self.disk.synced_index} synced: {message}")


@contextlib.contextmanager
def traced_nodes(folder: Path, config: ClusterConfig, core: str) -> Iterator[list[Path]]:
    """Three nodes under strace, stopped in order: the files of their traces."""
    path = folder / "cluster.toml"
    path.write_text(to_toml(replace(config, path=path)))
    traces = [folder / f"{node.name}.strace" for node in config.nodes]
    with contextlib.ExitStack() as stack:
        for trace, node in zip(traces, config.nodes, strict=True):
            member = (sys.executable, "-m", "tests.node.raft.traced", core, "serve")
            process = stack.enter_context(
                subprocess.Popen(
                    syscalls.traced(trace, *member, "--config", str(path), "--node", node.name),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            stack.callback(os.killpg, process.pid, signal.SIGTERM)
        yield traces


async def load(config: ClusterConfig) -> None:
    """Publish once all nodes follow, some at a time, each confirmed."""
    async with (
        asyncio.timeout(READY_SECONDS),
        fifo.connect(config.url, timeout=READY_SECONDS, connect_timeout=READY_SECONDS) as client,
    ):
        await client.declare(fifo.QueueSpec("traced"), timeout=READY_SECONDS)
        for node in config.nodes:
            while not await follows(str(node.client)):
                await passed(0.05)
        for _ in range(BATCHES):
            bodies = [os.urandom(100) for _ in range(10)]
            await asyncio.gather(*(client.publish("traced", body) for body in bodies))


async def follows(address: str) -> bool:
    """Whether a node is there and knows a leader."""
    try:
        return (await fifo.client.observe(address))["leader"] is not None
    except (fifo.FifoError, OSError):
        return False


def judged(folder: Path, core: str) -> list[Judge]:
    """Return the judgement on each node's promises."""
    config = loopback_config(folder, 3)
    with traced_nodes(folder, config, core) as traces:
        asyncio.run(load(config))
    peers = {f":{node.peer.port}" for node in config.nodes}
    return [Judge(peers).read(trace) for trace in traces]


def test_an_acknowledgement_leaves_after_the_sync_it_stands_on(tmp_path: Path) -> None:
    judges = judged(tmp_path, "-")
    assert [judge.early for judge in judges] == [[], [], []]
    acknowledged = [judge.seen.get("next_node_idx", 0) for judge in judges]
    assert sum(count > 0 for count in acknowledged) >= 2, acknowledged  # of all but the leader
    assert sum(acknowledged) >= BATCHES, acknowledged  # of a follower or the other
    assert sum(judge.seen.get("commit", 0) for judge in judges) >= BATCHES
    assert sum(judge.seen.get("response_vote", 0) for judge in judges) >= 1
    assert all(judge.disk.synced_index > 10 for judge in judges)


@pytest.mark.parametrize("core", ["AnswersAtOnce"])
def test_a_node_that_acknowledges_before_the_sync_is_seen(tmp_path: Path, core: str) -> None:
    assert any(judge.early for judge in judged(tmp_path, core))
