"""``fifo serve``: run one node.

Owns the process: configuration, checks, event loop, signals, logging, exit code. Must not know the
parts of a node, which `node.server` puts together.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fifo.loop import has_uvloop, new_loop
from node.allocator import FreedMemory
from node.cli.checks import check_data_dir, check_ports
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.limits import POLL_S, SWITCH_SECONDS
from node.cli.logs import LogFormat, LogLevel, start_logging
from node.cli.processes import die_with_parent
from node.cli.state import FOLDER_DEFAULT, SINGLE
from node.collector import Collector
from node.config import (
    BASE_PORT_DEFAULT,
    check_join,
    load_config,
    parse_address,
    single_node_config,
)
from node.table import ConfigError

if TYPE_CHECKING:
    from node.config import ClusterConfig
    from node.server import Node

_LOG = logging.getLogger("node.serve")


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="Path of a cluster.toml; without it, a single node.", metavar="FILE"
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", help="Name of the [[node]] section to run.", metavar="NAME"),
    ] = None,
    recover: Annotated[
        bool,
        typer.Option(
            "--recover",
            help="Rebuild this node from its peers after its data was lost or damaged. Use once.",
        ),
    ] = False,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Data folder, without --config.", metavar="DIR")
    ] = FOLDER_DEFAULT / SINGLE,
    base_port: Annotated[
        int,
        typer.Option(
            min=1,
            max=65_532,
            help="Base port, without --config: base + 1 for clients, + 2 for peers, + 3 for HTTP.",
            metavar="PORT",
        ),
    ] = BASE_PORT_DEFAULT,
    dev: Annotated[
        bool,
        typer.Option(
            "--dev", help="A queue for a laptop: one node in a temporary folder, gone at the end."
        ),
    ] = False,
    join: Annotated[
        list[str] | None,
        typer.Option(
            "--join",
            help="Peer address of a member: become one too, once `fifo member add` says so.",
            metavar="HOST:PORT",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            envvar="FIFO_LOG_FORMAT",
            help="Form of the lines of the log: text or json.",
            metavar="FORMAT",
        ),
    ] = LogFormat.TEXT,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            "--log-level",
            envvar="FIFO_LOG_LEVEL",
            help="Least level of the log: debug, info, warning or error (default: info).",
            metavar="LEVEL",
        ),
    ] = None,
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,
) -> None:
    """Run one node until SIGTERM or Ctrl-C.

    Without options, runs a single node on loopback.
    """
    if parent is not None:
        die_with_parent(parent)
    if dev:
        _refuse_files_of_dev(config, node, data_dir, recover=recover or bool(join))
        start_logging(log_format, log_level or LogLevel.WARNING)
        _serve_dev(base_port)
        return
    settings, name = _choose(config, node, data_dir, base_port)
    settings = _joining(settings, join or [])
    member = settings.node(name)
    check_ports(member, "stop the process that listens there, or configure another port")
    check_data_dir(member)
    start_logging(log_format, log_level or LogLevel.INFO)
    _warn_of_wildcards(settings)
    _warn_of_unproven_peers(settings)
    _run(settings, name, config, recover=recover)


def _refuse_files_of_dev(
    config: Path | None, node: str | None, data_dir: Path, *, recover: bool
) -> None:
    if config is not None or node is not None or recover or data_dir != FOLDER_DEFAULT / SINGLE:
        raise UsageProblem(
            "--dev keeps nothing and reads no file: leave out --config, --node, --recover, --join"
            " and --data-dir"
        )


def _serve_dev(base_port: int) -> None:
    """Serve a node in a temporary folder, and print its URL once it is ready."""
    with tempfile.TemporaryDirectory(prefix="fifo-dev-", ignore_cleanup_errors=True) as folder:
        settings = single_node_config(Path(folder), base_port)
        member = settings.nodes[0]
        check_ports(member, "choose others with --base-port")
        _run(settings, member.name, None, recover=False, ready=f"fifo://{member.client}")


def _choose(
    path: Path | None, node: str | None, data_dir: Path, base_port: int
) -> tuple[ClusterConfig, str]:
    """Load the configuration and choose the node of it to run."""
    if path is None:
        if node is not None:
            raise UsageProblem("--node needs --config: give the cluster.toml that names the node")
        return single_node_config(data_dir, base_port), "n1"
    config = load_config(path)
    if node is None and len(config.nodes) > 1:
        names = ", ".join(member.name for member in config.nodes)
        raise UsageProblem(f"{path} has several nodes: choose one with --node: {names}")
    return config, node or config.nodes[0].name


def _joining(settings: ClusterConfig, join: list[str]) -> ClusterConfig:
    """The configuration of a node that joins at these addresses, or at those of its file."""
    if not join:
        return settings
    if settings.path is None:
        raise UsageProblem("--join needs --config: the file names the cluster and this node")
    try:
        found = replace(settings, join=tuple(map(parse_address, join)))
    except ValueError as error:
        raise UsageProblem(f"--join: {error}") from None
    check_join(found)
    return found


def _warn_of_wildcards(settings: ClusterConfig) -> None:
    """Warn of wildcard addresses: nodes and clients dial the file's addresses, and 0.0.0.0 leads
    each of them to its own machine.
    """
    for node in settings.nodes if len(settings.nodes) > 1 else ():
        for key, address in (("client", node.client), ("peer", node.peer)):
            if address.is_wildcard:
                _LOG.warning(
                    "event=wildcard_address node=%s %s=%s advice=name a host that others can dial",
                    *(node.name, key, address),
                )


def _warn_of_unproven_peers(settings: ClusterConfig) -> None:
    """Warn of users without a secret of the nodes: any program that reaches the peer port is a
    member, whatever its user may do. Elsewhere than on loopback such a file is refused.
    """
    proven = settings.secret or (settings.tls is not None and settings.tls.peer_cert)
    if len(settings.nodes) > 1 and settings.users and not proven:
        _LOG.warning(
            "event=peers_unproven advice=set secret_file in [cluster]: without it every program on"
            " this machine can act as a node, whatever users it has"
        )


def _run(
    config: ClusterConfig, name: str, path: Path | None, *, recover: bool, ready: str | None = None
) -> None:
    if not has_uvloop():
        _LOG.warning("event=no_uvloop advice=install uvloop; plain asyncio is slower")
    # The disk's thread waits this long for the GIL after a sync; the default of 5 ms is longer than
    # most syncs.
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=new_loop) as runner, Collector() as collector:
        runner.run(_live(config, name, path, collector, recover=recover, ready=ready))


async def _live(
    config: ClusterConfig,
    name: str,
    path: Path | None,
    collector: Collector,
    *,
    recover: bool,
    ready: str | None,
) -> None:
    """Start the node, wait for a signal or its end, and shut it down. `ready`: the URL to print
    once the node leads.

    SIGHUP reloads the users and certificates of the file.
    """
    # Imported here: the other commands start twice as fast without the parts of a node.
    from node.http.server import HttpServer
    from node.server import Node

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    joins = bool(config.join)
    if joins:
        found = await _members_of(config, name, stopping)
        if found is None:
            return
        config = found
    again = True
    while again:
        node = Node(
            config,
            name,
            http=HttpServer,
            recover=recover,
            asks_first=path is not None,
            joins=joins,
            collector=collector,
        )
        again = await _live_once(node, path, stopping, ready=ready)
        recover = False


async def _members_of(
    config: ClusterConfig, name: str, stopping: asyncio.Event
) -> ClusterConfig | None:
    """The configuration of a node that joins, with the members; None where it is stopped before it
    knows them."""
    from node.broker.joining import Joining
    from node.raft import OsStorage
    from node.server import peer_port_of

    joining = Joining(config, config.node(name), peer_port_of(config, name))
    storage = OsStorage(config.node(name).data_dir)
    looking = asyncio.ensure_future(joining.found(storage))
    asked = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((looking, asked), return_when=asyncio.FIRST_COMPLETED)
        return looking.result() if looking.done() else None
    finally:
        looking.cancel()
        asked.cancel()


async def _live_once(
    node: Node, path: Path | None, stopping: asyncio.Event, *, ready: str | None
) -> bool:
    """Run one node to its end. True where its journal was given up: the next one recovers."""
    from node.server import NodeStopped, RaftError

    loop, name = asyncio.get_running_loop(), node.me.name
    try:
        await node.start()
    except (RaftError, ConfigError, OSError) as error:
        await node.stop()
        raise CliError(f"node {name} cannot start: {one_line(error)}") from error
    if path is not None:
        loop.add_signal_handler(signal.SIGHUP, _reload, node, path)
    if ready is not None:
        loop.call_soon(_tell_when_ready, node, ready)
    running = asyncio.ensure_future(node.run())
    asked = asyncio.ensure_future(stopping.wait())
    trimming = asyncio.ensure_future(FreedMemory().run())
    try:
        await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            _LOG.info("stopping node=%s", name)
    finally:
        asked.cancel()
        trimming.cancel()
        await node.stop()
    ended = None if running.cancelled() else running.exception() if running.done() else None
    if isinstance(ended, NodeStopped) and ended.recovers and not stopping.is_set():
        _LOG.warning("event=starting_again node=%s reason=its journal was given up", name)
        return True
    await _check_ending(running, name, was_asked=stopping.is_set())
    return False


def _tell_when_ready(node: Node, url: str) -> None:
    if node.leads:
        typer.echo(url)
    else:
        asyncio.get_running_loop().call_later(POLL_S / 5, _tell_when_ready, node, url)


def _reload(node: Node, path: Path) -> None:
    """Reload the file; log an error and keep the old configuration where it is invalid."""
    try:
        node.reload(load_config(path))
    except ConfigError as error:
        _LOG.error("event=reload_failed kept=old reason=%s", one_line(error))


async def _check_ending(running: asyncio.Task[None], name: str, *, was_asked: bool) -> None:
    """Raise CliError with the reason, unless the node was asked to stop."""
    try:
        await running
    except asyncio.CancelledError:
        pass
    except Exception as error:
        if not was_asked:
            raise CliError(f"node {name} stopped: {one_line(error)}") from error
    if not was_asked:
        raise CliError(f"node {name} stopped unexpectedly; the reason is in its log")
