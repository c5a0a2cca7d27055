"""``fifo cluster``: a cluster of several node processes on this machine.

Owns the options and the output of its verbs; `node.cli.local` owns the processes.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli import folders, local, observe, output
from node.cli.confirmation import Yes, confirm
from node.cli.errors import CliError
from node.cli.limits import KILL_WAIT_S, LOG_TAIL_BYTES, POLL_S
from node.cli.listing import Watch, repeat
from node.cli.processes import pause_between_polls, wait_gone
from node.cli.rebuild import rebuild
from node.cli.removal import remove_cluster
from node.cli.session import Json, Url, choose_url, node_options
from node.cli.state import FOLDER_DEFAULT, ClusterFolder, state_of
from node.cli.tables import Column, number

if TYPE_CHECKING:
    from fifo.client.connection.options import Options
    from node.cli.observe import View
    from node.cli.processes import ProcessId
    from node.cli.state import ClusterState, NodeState
    from node.config import ClusterConfig

app = typer.Typer(
    no_args_is_help=True,
    help="Run a cluster of several nodes on this machine.",
    epilog="Example: fifo cluster start --detach",
)

Folder = Annotated[
    Path, typer.Option("--dir", help="Folder of the cluster's files.", metavar="DIR")
]
Which = Annotated[str, typer.Argument(metavar="N", help="Number of the node, from 1, or its name.")]


@app.command(epilog="Example: fifo cluster start --detach")
def start(
    count: Annotated[
        int | None,
        typer.Option(
            "-n", "--nodes", min=1, max=9, help="Number of nodes (default 3).", metavar="N"
        ),
    ] = None,
    directory: Folder = FOLDER_DEFAULT,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            help="Base port; node i (from 0) uses base + 10 i + 1 for clients, + 2 for peers and"
            " + 3 for HTTP (default 7100).",
            metavar="PORT",
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return once a leader is elected; leave the nodes running."),
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Start a cluster and wait for its leader.

    Without --detach, Ctrl-C stops all nodes. A cluster that was stopped or killed in the same
    folder starts again with its data.
    """
    folder = ClusterFolder(directory)
    interrupts = local.Interrupts()
    with interrupts.caught():
        folder.prepare()
        with folder.locked():
            local.refuse_running(folder)
            view = _start(folder, local.plan(folder, count, base_port), url, detach, interrupts)
        if as_json:
            output.print_json(_contract_view(view))
        else:
            _print_started(folder, view, detach=detach)
        _note_silent(view)
        if not detach:
            local.supervise(folder, interrupts, output.note)


@app.command(epilog="Example: fifo cluster status --json")
def status(
    directory: Folder = FOLDER_DEFAULT,
    watch: Watch = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the nodes of the cluster that was started here.

    A cluster with users or TLS needs --url (or FIFO_URL): fifo://user:password@host:port.
    """
    folder = ClusterFolder(directory)

    async def fetch() -> View:
        state = folder.require()
        return await observe.cluster_view(state, options=_who_asks(state, url))

    if watch:
        asyncio.run(repeat(fetch, _draw, plain=_contract_view, as_json=as_json))
        return
    view = asyncio.run(fetch())
    if as_json:
        output.print_json(_contract_view(view))
    else:
        _draw(view)


def _draw(view: View) -> None:
    _print_nodes(view)
    _note_silent(view)


def _note_silent(view: View) -> None:
    """Report the errors of nodes that run but report no status."""
    for node in view["nodes"]:
        if node["role"] == "down" and node["state"] == "running":
            output.note(f"{node['name']} runs but reports no status: {node['error']}")


def _who_asks(state: ClusterState, url: str | None) -> Options | None:
    """Credentials and TLS of the URL; None where it names another cluster, whose secret must not
    be sent to this one.
    """
    if url is None:
        return None
    options = node_options(choose_url(url))
    return options if {node.client for node in state.nodes} & set(options.addresses) else None


@app.command(epilog="Example: fifo cluster stop")
def stop(directory: Folder = FOLDER_DEFAULT) -> None:
    """Stop all nodes; their data is kept for the next start."""
    folder = ClusterFolder(directory)
    count, killed = local.stop_cluster(folder, folder.require())
    for name in killed:
        output.note(f"{name} did not stop in time and was killed; its data is safe")
    if count:
        output.say(f"stopped {count} node{'s' if count > 1 else ''}")
    else:
        output.say("no node was running")


@app.command(epilog="Example: fifo cluster stop && fifo cluster clean")
def clean(directory: Folder = FOLDER_DEFAULT, yes: Yes = False) -> None:
    """Delete a stopped cluster and all its data.

    Deletes the files that its cluster.json lists; a folder without one is left alone.
    """
    folder = ClusterFolder(directory)
    local.refuse_running(folder)
    if not yes and folder.load() is not None:
        confirm(f"every message of the cluster in {directory} will be deleted", "Delete it?")
    removal = remove_cluster(folder)
    for path in removal.deleted:
        output.say(f"deleted {path}")
    for path in removal.kept:
        output.note(f"kept {path}: not a file of this cluster")
    if not removal.deleted:
        output.say(f"nothing to delete in {directory}: no cluster was started there")


@app.command(epilog="Example: fifo cluster kill 1")
def kill(which: Which, directory: Folder = FOLDER_DEFAULT) -> None:
    """Kill one node (SIGKILL), as a crash would."""
    folder = ClusterFolder(directory)
    node, process = _living(folder, which)
    process.signal(signal.SIGKILL)
    if wait_gone([process], KILL_WAIT_S):
        raise CliError(f"{node.name} (pid {process.pid}) did not end after SIGKILL")
    output.say(f"{node.name} killed; start it again: fifo cluster restart {which}{folder.flag}")


@app.command(epilog="Example: fifo cluster pause 2")
def pause(which: Which, directory: Folder = FOLDER_DEFAULT) -> None:
    """Freeze one node (SIGSTOP).

    It keeps its sockets and stops answering.
    """
    folder = ClusterFolder(directory)
    node, process = _living(folder, which)
    process.signal(signal.SIGSTOP)
    output.say(f"{node.name} paused; resume it: fifo cluster resume {which}{folder.flag}")


@app.command(epilog="Example: fifo cluster resume 2")
def resume(which: Which, directory: Folder = FOLDER_DEFAULT) -> None:
    """Resume a paused node (SIGCONT)."""
    node, process = _living(ClusterFolder(directory), which)
    process.signal(signal.SIGCONT)
    output.say(f"{node.name} resumed")


@app.command(epilog="Example: fifo cluster restart 1")
def restart(
    which: Which,
    recover: Annotated[
        bool,
        typer.Option(
            local.RECOVER,
            help="Rebuild the node from its peers after its data was lost or damaged.",
        ),
    ] = False,
    directory: Folder = FOLDER_DEFAULT,
) -> None:
    """Restart a running node, or start one that was killed."""
    folder = ClusterFolder(directory)
    state = folder.require()
    node = state.node(which)
    with folder.locked():
        state = local.restart(folder, state, node, recover=recover)
    role = asyncio.run(local.wait_for_node(state, node.name))
    process = state.node(node.name).process
    if process is None or not process.alive:
        last = local.last_line(folder, node.name)
        again = f"; run it as fifo cluster restart {which} {local.RECOVER}{folder.flag}"
        hint = again if local.RECOVER in last and not recover else ""
        raise CliError(f"{node.name} exited at start: {last}{hint}")
    idle = local.missing(state)
    role = _waits_for(folder, state, idle) if idle else role
    output.say(f"{node.name} started: pid {process.pid}, {role}")


def _waits_for(folder: ClusterFolder, state: ClusterState, idle: list[NodeState]) -> str:
    """Name the nodes that a quorum lacks, and the commands that start them."""
    count = len(idle) - (len(state.nodes) - 1) // 2
    first = idle[0]
    number = state.nodes.index(first) + 1
    verb = "resume" if first.process is not None and first.process.alive else "restart"
    flag = folder.flag
    return (
        f"waits for {'another node' if count == 1 else f'{count} other nodes'};"
        f" {verb} {first.name}: fifo cluster {verb} {number}{flag}; or restart all with their"
        f" data: fifo cluster stop{flag} && fifo cluster start{flag}"
    )


@app.command(epilog="Example: fifo cluster logs 1 -f")
def logs(
    which: Which,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep printing as the log grows.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Print the log from its beginning.")
    ] = False,
    directory: Folder = FOLDER_DEFAULT,
) -> None:
    """Print the end of a node's log."""
    folder = ClusterFolder(directory)
    path = folder.log_path(folder.require().node(which).name)
    try:
        _print_log(path, follow=follow, everything=everything)
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from None


app.command(epilog="Example: fifo cluster init --config cluster.toml --node n1")(folders.init)
app.command(epilog="Example: fifo cluster adopt --config cluster.toml --node n2")(folders.adopt)
app.command(
    epilog="Example: fifo cluster rebuild --config cluster.toml --from n1 --lost n2 --lost n3"
)(rebuild)


def _start(
    folder: ClusterFolder,
    config: ClusterConfig,
    url: str | None,
    detach: bool,
    interrupts: local.Interrupts,
) -> View:
    """Start all nodes and wait for a leader; on any failure, stop them all."""
    options = _who_asks(state_of(config), url)
    removed = local.removed_by_log(config)
    for name in removed:
        output.note(f"{name} is no member any more (fifo member remove), and is not started")
    try:
        state = local.start_all(folder, config, detach=detach, without=removed)
        waiting = local.wait_for_leader(folder, state, lambda: interrupts.count > 0, options)
        return asyncio.run(waiting)
    except BaseException:
        left = folder.load()
        if left is not None:
            local.stop_nodes(left)
        raise


def _living(folder: ClusterFolder, which: str) -> tuple[NodeState, ProcessId]:
    node = folder.require().node(which)
    if node.process is None or not node.process.alive:
        raise CliError(
            f"{node.name} is not running; start it: fifo cluster restart {which}{folder.flag}"
        )
    return node, node.process


def _contract_view(view: View) -> View:
    """The view without the fields that only the command line uses."""
    internal = ("knows", "error", "ready")
    nodes = [{k: v for k, v in node.items() if k not in internal} for node in view["nodes"]]
    return {**view, "nodes": nodes}


def _print_nodes(view: View) -> None:
    output.print_table(
        (
            Column("node"),
            Column("role"),
            number("pid", 2),
            Column("client"),
            Column("peer", 3),
            Column("http", 1),
        ),
        (
            (
                node["name"],
                _role_word(node),
                node["pid"],
                node["client"],
                node["peer"],
                node["http"],
            )
            for node in view["nodes"]
        ),
    )


def _role_word(node: View) -> str:
    if node["state"] == "paused":
        return "paused"
    return "ready" if node["ready"] else str(node["role"])


def _print_started(folder: ClusterFolder, view: View, *, detach: bool) -> None:
    _print_nodes(view)
    flag = "" if not folder.flag else f" --url {view['url']}"
    output.say("")
    output.say("Next, in another terminal:" if not detach else "Next:")
    output.say(f"  fifo queue declare orders{flag}")
    output.say(f"  fifo publish orders --body hello{flag}")
    output.say(f"  or look: http://{view['nodes'][0]['http']}/  (the console, on every node)")
    output.say("")
    stop_with = f"fifo cluster stop{folder.flag}" if detach else "Ctrl-C"
    output.say(f"url {view['url']}; {stop_with} stops all nodes")


def _print_log(path: Path, *, follow: bool, everything: bool) -> None:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0 if everything else max(0, size - LOG_TAIL_BYTES))
        if file.tell():
            file.readline()  # Skip the first line, which is probably a fragment.
        while True:
            chunk = file.read(LOG_TAIL_BYTES)
            if chunk:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
            elif not follow:
                return
            else:
                pause_between_polls(POLL_S)
