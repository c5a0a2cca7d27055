"""A cluster on this machine: start, supervise and stop its node processes.

Owns the actions of the ``fifo cluster`` verbs; `node.cli.cluster` owns their options and output.
Every signal goes through `ProcessId`, so that it can only reach our own nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from node.cli import observe
from node.cli.checks import check_data_dir, check_ports
from node.cli.errors import INTERRUPTED, CliError
from node.cli.folders import begin
from node.cli.limits import (
    AGREE_WAIT_S,
    KILL_WAIT_S,
    LEADER_WAIT_S,
    OBSERVE_TIMEOUT_S,
    POLL_S,
    STOP_WAIT_S,
    SUPERVISE_S,
)
from node.cli.processes import (
    ProcessId,
    exit_code,
    identify,
    pause_between_polls,
    start_node,
    wait_gone,
    wait_until,
)
from node.cli.state import ClusterFolder, ClusterState, NodeState, state_of
from node.config import BASE_PORT_DEFAULT, ClusterConfig, cluster_config

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import FrameType

    from fifo.client.connection.options import Options
    from node.cli.observe import View

NODES_DEFAULT = 3
"""Smallest cluster that tolerates the loss of one node."""

RECOVER = "--recover"
"""Option of `fifo serve` and `fifo cluster restart` for a node that lost its journal."""


class Interrupts:
    """Count Ctrl-C, SIGTERM and SIGHUP instead of letting them interrupt a start."""

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def caught(self) -> Iterator[Interrupts]:
        """Count the signals inside the context; restore their handlers afterwards."""
        before = {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Respect a SIGHUP ignored by nohup. A SIGINT ignored by a script's & is counted
            # nevertheless: ignoring it would leave the nodes behind.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, self._note)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def plan(folder: ClusterFolder, count: int | None, base_port: int | None) -> ClusterConfig:
    """Build the configuration to start; an earlier start decides what is not given."""
    old = folder.existing_config()
    if old is None:
        return cluster_config(count or NODES_DEFAULT, base_port or BASE_PORT_DEFAULT, folder.path)
    if count is not None and count != len(old.nodes):
        raise CliError(
            f"{folder.path} contains a cluster of {len(old.nodes)} nodes, not {count};"
            f" omit -n, or delete its data: fifo cluster clean{folder.flag}"
        )
    if base_port is None:
        return old
    moved = cluster_config(len(old.nodes), base_port, folder.path)
    members = tuple(
        replace(new, name=node.name, data_dir=node.data_dir)
        for node, new in zip(old.nodes, moved.nodes, strict=True)
    )
    return replace(old, nodes=members)


def refuse_running(folder: ClusterFolder) -> None:
    """Raise CliError where nodes or the supervisor of this folder still run."""
    state = folder.load()
    if state is None:
        return
    living = state.living()
    if living or (state.supervisor is not None and state.supervisor.alive):
        pids = ", ".join(f"{n.name} pid {n.process.pid}" for n in living if n.process is not None)
        raise CliError(
            f"a cluster is already running in {folder.path} ({pids or 'stopping'});"
            f" stop it first: fifo cluster stop{folder.flag}"
        )


def removed_by_log(config: ClusterConfig) -> list[str]:
    """The nodes of a file that are no members any more, by what those that are here have noted."""
    from node.cli.logged import noted_in  # A part of a node, which no other command here needs.

    known = noted_in(config.nodes)
    return [] if known is None else [n.name for n in config.nodes if not known.member(n.name)]


def start_all(
    folder: ClusterFolder, config: ClusterConfig, *, detach: bool, without: Collection[str] = ()
) -> ClusterState:
    """Check all nodes, then start them; ``cluster.json`` records each as soon as it runs. Those
    `without` which the cluster runs stay as they are."""
    members = [node for node in config.nodes if node.name not in without]
    for member in members:
        check_ports(member, "stop what listens there, or choose others with --base-port")
        check_data_dir(member)
    if folder.existing_config() is None:
        for member in members:  # The files of a cluster that ran here before stay.
            with contextlib.suppress(CliError):
                begin(member)
    folder.write_config(config)
    state = state_of(config)
    if not detach:
        state = replace(state, supervisor=identify(os.getpid()))
    folder.save(state)
    for node in members:
        process = start_one(folder, node.name, die_with_me=not detach)
        state = state.with_process(node.name, process)
        folder.save(state)
    return state


def start_one(
    folder: ClusterFolder, name: str, *, die_with_me: bool, recover: bool = False
) -> ProcessId:
    """Start one node of the folder's configuration."""
    config_path = str(folder.config_path.absolute())
    return start_node(
        ["serve", "--config", config_path, "--node", name, *([RECOVER] if recover else [])],
        folder.log_path(name),
        die_with_me=die_with_me,
    )


async def wait_for_leader(
    folder: ClusterFolder,
    state: ClusterState,
    interrupted: Callable[[], bool],
    options: Options | None = None,
) -> View:
    """Poll all nodes until one leads and the others follow; raise CliError on failure.

    A node that refuses the credentials of `options` is asked for its health instead.
    """
    deadline = time.monotonic() + LEADER_WAIT_S
    agree_deadline = deadline
    while True:
        view = await observe.cluster_view(state, OBSERVE_TIMEOUT_S, options)
        await _mark_ready(state, view)
        now = time.monotonic()
        if all(node["ready"] for node in view["nodes"]):
            return view
        if view["leader"] is not None:
            agree_deadline = min(agree_deadline, now + AGREE_WAIT_S)
            complete = all(node["role"] != "down" or node["ready"] for node in view["nodes"])
            if (complete and observe.all_follow(view)) or now >= agree_deadline:
                return view
        if interrupted():
            raise CliError("interrupted: every node was stopped", code=INTERRUPTED)
        for node in state.nodes:
            if node.process is not None and not node.process.alive:
                raise CliError(f"{node.name} exited at start: {last_line(folder, node.name)}")
        if now >= deadline:
            raise CliError(
                f"no leader after {LEADER_WAIT_S:.0f} s;"
                f" read the log: fifo cluster logs 1{folder.flag}"
            )
        await asyncio.sleep(POLL_S)


async def _mark_ready(state: ClusterState, view: View) -> None:
    """Mark the running nodes that report no role but are ready by their health endpoint."""
    for node, seen in zip(state.nodes, view["nodes"], strict=True):
        if seen["role"] == "down" and seen["state"] == "running":
            seen["ready"] = await observe.is_healthy(node, "ready")


def missing(state: ClusterState) -> list[NodeState]:
    """The nodes that do not run, if the rest is no quorum; else none."""
    idle = [n for n in state.nodes if n.process is None or n.process.state() != "running"]
    return idle if 2 * len(idle) >= len(state.nodes) else []


async def wait_for_node(state: ClusterState, name: str) -> str:
    """Wait until a node answers and knows a leader; returns its role, at worst ``down``.

    Without a quorum it suffices that the node answers.
    """
    deadline = time.monotonic() + LEADER_WAIT_S
    alone = bool(missing(state))
    what: Literal["live", "ready"] = "live" if alone else "ready"
    while True:
        view = await observe.cluster_view(state)
        node = next(n for n in view["nodes"] if n["name"] == name)
        role = str(node["role"])
        if role == "down" and await observe.is_healthy(state.node(name), what):
            return what
        up = role != "down" and (alone or node["knows"] is not None)
        if up or time.monotonic() >= deadline or node["pid"] is None:
            return role
        await asyncio.sleep(POLL_S)


def stop_nodes(
    state: ClusterState, hurry: Callable[[], bool] = lambda: False
) -> tuple[int, list[str]]:
    """Stop the living nodes, by SIGTERM and then SIGKILL: their number, and the names killed."""
    living = state.living()
    processes = [n.process for n in living if n.process is not None]
    for process in processes:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)  # A paused node handles SIGTERM only after SIGCONT.
    wait_until(lambda: hurry() or not any(p.alive for p in processes), STOP_WAIT_S)
    killed = [n.name for n in living if n.process is not None and n.process.alive]
    for process in processes:
        process.signal(signal.SIGKILL)
    left = wait_gone(processes, KILL_WAIT_S)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise CliError(f"pid {pids} did not end after SIGKILL; check whether its disk hangs")
    return len(living), killed


def stop_cluster(folder: ClusterFolder, state: ClusterState) -> tuple[int, list[str]]:
    """Stop all nodes, through the foreground `cluster start` where there is one."""
    supervisor = state.supervisor
    count = len(state.living())
    if supervisor is not None and supervisor.signal(signal.SIGTERM):
        wait_gone([supervisor], STOP_WAIT_S + KILL_WAIT_S)
    # The supervisor may have restarted a node meanwhile: read the state again.
    late, killed = stop_nodes(folder.require())
    return max(count, late), killed


def supervise(folder: ClusterFolder, interrupts: Interrupts, report: Callable[[str], None]) -> None:
    """Supervise the nodes of a foreground start until it is interrupted, then stop them."""
    while interrupts.count == 0:
        state = folder.require()
        for node in state.nodes:
            _check_node(folder, state, node, report)
        pause_between_polls(SUPERVISE_S)
    report("stopping all nodes")
    asked = interrupts.count
    _, killed = stop_nodes(folder.require(), hurry=lambda: interrupts.count > asked)
    for name in killed:
        report(f"{name} did not stop in time and was killed")


def restart(
    folder: ClusterFolder, state: ClusterState, node: NodeState, *, recover: bool = False
) -> ClusterState:
    """Stop a node if it lives and start it again, through the supervisor where there is one."""
    only = replace(state, nodes=(node,))
    stop_nodes(only)
    supervisor = state.supervisor
    if supervisor is None or not supervisor.alive:
        process = start_one(folder, node.name, die_with_me=False, recover=recover)
        changed = replace(state, supervisor=None).with_process(node.name, process)
        folder.save(changed)
        return changed
    request = folder.start_request(node.name, recover=recover)
    request.touch()

    def started() -> bool:
        return bool(folder.require().node(node.name).process != node.process)

    if not wait_until(started, KILL_WAIT_S):
        request.unlink(missing_ok=True)
        raise CliError(
            f"the `fifo cluster start` with pid {supervisor.pid} did not start {node.name};"
            " stop it with Ctrl-C and start again"
        )
    return folder.require()


def last_line(folder: ClusterFolder, name: str) -> str:
    """Last line of a node's log."""
    try:
        lines = folder.log_path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    written = [line for line in lines if line.strip()]
    return written[-1] if written else "its log is empty"


def _check_node(
    folder: ClusterFolder, state: ClusterState, node: NodeState, report: Callable[[str], None]
) -> None:
    code = None if node.process is None else exit_code(node.process)
    if code is not None:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        number = state.nodes.index(node) + 1
        report(
            f"{node.name} ended ({how}); start it again: fifo cluster restart {number}{folder.flag}"
        )
    for recover in (False, True):
        request = folder.start_request(node.name, recover=recover)
        if request.exists():
            request.unlink()
            process = start_one(folder, node.name, die_with_me=True, recover=recover)
            folder.save(folder.require().with_process(node.name, process))
            report(f"{node.name} started, pid {process.pid}")
