"""``fifo serve``: be one node.

Owns the life of the process: configuration, checks, event loop, signals, logging, exit code.
What a node is, is the broker's (`node.server`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli.checks import check_data_dir, check_ports
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.limits import SWITCH_SECONDS
from node.cli.processes import die_with_parent
from node.cli.state import FOLDER_DEFAULT, SINGLE
from node.collector import Collector
from node.config import BASE_PORT_DEFAULT, load_config, single_node_config
from node.table import ConfigError

if TYPE_CHECKING:
    from node.config import ClusterConfig
    from node.server import Node

_LOG = logging.getLogger("node.serve")


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", help="A cluster.toml; without it, one node alone.")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", help="Which [[node]] of the file to be.")
    ] = None,
    recover: Annotated[
        bool,
        typer.Option(
            "--recover",
            help="Set a damaged journal aside, or begin in an empty folder that was not empty "
            "before, and get everything back from the other nodes. To be given once.",
        ),
    ] = False,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Without --config: where the data is kept.")
    ] = FOLDER_DEFAULT / SINGLE,
    base_port: Annotated[
        int, typer.Option(min=1, max=65_532, help="Without --config: ports this + 1, + 2, + 3.")
    ] = BASE_PORT_DEFAULT,
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,
) -> None:
    """Run one node until SIGTERM or Ctrl-C. Without arguments one node alone, on loopback."""
    if parent is not None:
        die_with_parent(parent)
    settings, name = _choose(config, node, data_dir, base_port)
    member = settings.node(name)
    check_ports(member, "is the node already running? else choose another port for it")
    check_data_dir(member)
    _start_logging()
    _warn_of_wildcards(settings)
    _run(settings, name, config, recover=recover)


class LineFormatter(logging.Formatter):
    """One event, one line: time, level and logger as key=value, then the event itself."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """UTC to the millisecond."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback is folded into it, unless FIFO_DEBUG asks to see it as it is."""
        text = super().format(record)
        if "\n" in text and not os.environ.get("FIFO_DEBUG"):
            text = text.replace("\n", " | ")
        return text


def _choose(
    path: Path | None, node: str | None, data_dir: Path, base_port: int
) -> tuple[ClusterConfig, str]:
    """The configuration and which of its nodes to be."""
    if path is None:
        if node is not None:
            raise UsageProblem("--node needs --config: which file is the node in?")
        return single_node_config(data_dir, base_port), "n1"
    config = load_config(path)
    if node is None and len(config.nodes) > 1:
        names = ", ".join(member.name for member in config.nodes)
        raise UsageProblem(f"{path} has several nodes: say which to be, --node with one of {names}")
    return config, node or config.nodes[0].name


def _start_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        LineFormatter("time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s")
    )
    level = logging.DEBUG if os.environ.get("FIFO_DEBUG") else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level > logging.DEBUG:
        # A line per request of a health probe would drown what matters.
        logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def _warn_of_wildcards(settings: ClusterConfig) -> None:
    """Nodes and clients dial what the file says: 0.0.0.0 leads each of them to its own machine."""
    for node in settings.nodes if len(settings.nodes) > 1 else ():
        for key, address in (("client", node.client), ("peer", node.peer)):
            if address.is_wildcard:
                _LOG.warning(
                    "event=wildcard_address node=%s %s=%s advice=name the host as others dial it",
                    *(node.name, key, address),
                )


def _run(config: ClusterConfig, name: str, path: Path | None, *, recover: bool) -> None:
    try:
        import uvloop
    except ImportError:
        factory = asyncio.new_event_loop
        _LOG.warning("uvloop is not installed: plain asyncio, slower")
    else:
        factory = uvloop.new_event_loop
    # A slow disk's thread has to say that it is done: 5 ms, the default, is longer than most syncs.
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=factory) as runner, Collector() as collector:
        runner.run(_live(config, name, path, collector, recover=recover))


async def _live(
    config: ClusterConfig, name: str, path: Path | None, collector: Collector, *, recover: bool
) -> None:
    """Start the node, wait for a signal or its end, and stop it in order.

    SIGHUP reads the users and certificates of the file again.
    """
    # Only here: the other commands start in half the time without a node's parts.
    from node.http.server import HttpServer
    from node.server import Node, RaftError

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    node = Node(config, name, http=HttpServer, recover=recover, collector=collector)
    try:
        await node.start()
    except (RaftError, ConfigError, OSError) as error:
        await node.stop()
        raise CliError(f"node {name} cannot start: {one_line(error)}") from error
    if path is not None:
        loop.add_signal_handler(signal.SIGHUP, _reload, node, path)
    running = asyncio.ensure_future(node.run())
    asked = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            _LOG.info("stopping node=%s", name)
    finally:
        asked.cancel()
        await node.stop()
    await _how_it_ended(running, name, was_asked=stopping.is_set())


def _reload(node: Node, path: Path) -> None:
    """What cannot be used changes nothing, and is one line of the log."""
    try:
        node.reload(load_config(path))
    except ConfigError as error:
        _LOG.error("event=reload_failed kept=old reason=%s", one_line(error))


async def _how_it_ended(running: asyncio.Task[None], name: str, *, was_asked: bool) -> None:
    """Nothing where the end was asked for; else the reason, for stderr and the exit code."""
    try:
        await running
    except asyncio.CancelledError:
        pass
    except Exception as error:
        if not was_asked:
            raise CliError(f"node {name} stopped: {one_line(error)}") from error
    if not was_asked:
        raise CliError(f"node {name} stopped by itself; its log says why")
