"""A member with PySyncObj as it ships, tuned as well as its own options allow.

Owns those options and their reasons. It keeps its log in memory, so it promises less than what it
is compared with: nothing survives a power cut. Must not know the other kind.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pysyncobj

from bench.raft.load import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from bench.raft.load import LoadSpec

ROUND_PER_COMMAND_WINDOW = 10
"""Up to this many outstanding commands a round for each is faster than a batch per period."""

BATCH_PERIOD_S = 0.005
"""Between two batches; the default of 0.1 s gives a quarter of the rate at a window of 1000."""

PATIENT_S = 4.0
"""Under load a tick can take seconds (zlib once per follower); with shorter time-outs the group
spends its time in elections and commits nothing at all."""

NEVER = 1_000_000_000


class Replicated(pysyncobj.SyncObj):  # type: ignore[misc]  # the library has no types
    """Counts the commands, each a replicated call with one bytes argument."""

    def __init__(self, name: str, ports: dict[str, int], spec: LoadSpec) -> None:
        self.applied = 0
        in_batches = spec.window > ROUND_PER_COMMAND_WINDOW
        options = pysyncobj.SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=in_batches,
            appendEntriesPeriod=BATCH_PERIOD_S if in_batches else 0.1,
            appendEntriesBatchSizeBytes=4 * 1024 * 1024,
            raftMinTimeout=0.6 if not in_batches else PATIENT_S,
            raftMaxTimeout=1.0 if not in_batches else PATIENT_S * 2,
            connectionTimeout=PATIENT_S * 2,
            commandsQueueSize=NEVER,
            commandsWaitLeader=False,
            logCompactionMinEntries=NEVER,
            logCompactionMinTime=NEVER,
        )
        own = f"127.0.0.1:{ports[name]}"
        others = [f"127.0.0.1:{port}" for other, port in ports.items() if other != name]
        super().__init__(own, others, options)

    @pysyncobj.replicated  # type: ignore[untyped-decorator]  # the library has no types
    def put(self, payload: bytes) -> None:
        """Apply a command."""
        self.applied += 1


def run(
    name: str, ports: dict[str, int], folder: Path, spec: LoadSpec, say: Callable[..., None]
) -> None:
    """Run a member in this process; does not return. `folder` is unused: nothing is stored."""
    node = Replicated(name, ports, spec)
    load: Load | None = None
    led = False

    def submit(payloads: Iterable[bytes], done: Callable[[bool], None]) -> None:
        def told(_: object, problem: int) -> None:
            done(problem == pysyncobj.FAIL_REASON.SUCCESS)

        for payload in payloads:
            node.put(payload, callback=told)

    def first(_: object, problem: int) -> None:
        if problem == pysyncobj.FAIL_REASON.SUCCESS:
            say("first_commit", at=time.clock_gettime(time.CLOCK_BOOTTIME))

    while True:
        leads = node._isLeader()
        if leads and not led:
            say("leader", term=node.raftCurrentTerm)
            node.put(b"first", callback=first)
            load = Load(spec, submit, time.monotonic)
        led = leads
        if load is not None:
            load.pump()
            if load.over:
                say("figures", **load.figures())
                load = None
        node.doTick(0.0 if load is not None else 0.01)
