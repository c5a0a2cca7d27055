"""``fifo cluster``: a real cluster of several processes on this machine, in one command.

Owns how its verbs are typed and what they print; `node.cli.local` does the work.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli import local, observe, output
from node.cli.errors import CliError
from node.cli.limits import KILL_WAIT_S, LOG_TAIL_BYTES, POLL_S
from node.cli.processes import let_pass, wait_gone
from node.cli.session import Url, choose_url, node_options
from node.cli.state import FOLDER_DEFAULT, ClusterFolder, state_of

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
    Path, typer.Option("--dir", help="Where the cluster keeps its files.", show_default=True)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Which = Annotated[str, typer.Argument(metavar="N", help="The node's number, from 1, or its name.")]


@app.command(epilog="Example: fifo cluster start --detach")
def start(
    count: Annotated[
        int | None,
        typer.Option("-n", "--nodes", min=1, max=9, help="Nodes; 3 unless told.", metavar="N"),
    ] = None,
    directory: Folder = FOLDER_DEFAULT,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            help="Node i (from 0) uses this + 10 i + 1 for clients, + 2 for peers, + 3 for http;"
            " 7100 unless told.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when there is a leader; leave it running.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Start a cluster and wait for its leader. Ctrl-C stops all nodes, unless --detach.

    Where one was before, even one that was killed, its nodes start again with their data.
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
def status(directory: Folder = FOLDER_DEFAULT, url: Url = None, as_json: Json = False) -> None:
    """Show the nodes of the cluster that was started here.

    Where it has users or TLS, --url (or FIFO_URL) says who asks: fifo://user:password@host:port.
    """
    state = ClusterFolder(directory).require()
    view = asyncio.run(observe.cluster_view(state, options=_who_asks(state, url)))
    if as_json:
        output.print_json(_contract_view(view))
    else:
        _print_nodes(view)
        _note_silent(view)


def _note_silent(view: View) -> None:
    """Why a node that runs does not tell its role."""
    for node in view["nodes"]:
        if node["role"] == "down" and node["state"] == "running":
            output.note(f"{node['name']} runs, but: {node['error']}")


def _who_asks(state: ClusterState, url: str | None) -> Options | None:
    """Credentials and TLS of a URL that means this cluster: no other's secret is sent to it."""
    if url is None:
        return None
    options = node_options(choose_url(url))
    return options if {node.client for node in state.nodes} & set(options.addresses) else None


@app.command(epilog="Example: fifo cluster stop")
def stop(directory: Folder = FOLDER_DEFAULT) -> None:
    """Stop all nodes; their data stays for the next start."""
    folder = ClusterFolder(directory)
    count, killed = local.stop_cluster(folder, folder.require())
    for name in killed:
        output.note(f"{name} did not stop in time and was killed; its data is safe")
    if count:
        output.say(f"stopped {count} node{'s' if count > 1 else ''}")
    else:
        output.say("nothing was running")


@app.command(epilog="Example: fifo cluster stop && fifo cluster clean")
def clean(directory: Folder = FOLDER_DEFAULT) -> None:
    """Delete a stopped cluster with all its data."""
    folder = ClusterFolder(directory)
    local.refuse_running(folder)
    removed = folder.remove()
    for path in removed:
        output.say(f"deleted {path}")
    if not removed:
        output.say(f"nothing to delete in {directory}")


@app.command(epilog="Example: fifo cluster kill 1")
def kill(which: Which, directory: Folder = FOLDER_DEFAULT) -> None:
    """Kill one node at once (SIGKILL), as a crash would."""
    folder = ClusterFolder(directory)
    node, process = _living(folder, which)
    process.signal(signal.SIGKILL)
    if wait_gone([process], KILL_WAIT_S):
        raise CliError(f"{node.name} (pid {process.pid}) did not end after SIGKILL")
    output.say(f"{node.name} killed; start it again: fifo cluster restart {which}{folder.flag}")


@app.command(epilog="Example: fifo cluster pause 2")
def pause(which: Which, directory: Folder = FOLDER_DEFAULT) -> None:
    """Freeze one node (SIGSTOP): it keeps its sockets and says nothing."""
    folder = ClusterFolder(directory)
    node, process = _living(folder, which)
    process.signal(signal.SIGSTOP)
    output.say(f"{node.name} paused; let it go on: fifo cluster resume {which}{folder.flag}")


@app.command(epilog="Example: fifo cluster resume 2")
def resume(which: Which, directory: Folder = FOLDER_DEFAULT) -> None:
    """Let a paused node go on (SIGCONT)."""
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
            help="Set its damaged journal aside, and get everything back from the others.",
        ),
    ] = False,
    directory: Folder = FOLDER_DEFAULT,
) -> None:
    """Start a killed node again, or stop and start a running one."""
    folder = ClusterFolder(directory)
    state = folder.require()
    node = state.node(which)
    with folder.locked():
        state = local.restart(folder, state, node, recover=recover)
    role = asyncio.run(local.wait_for_node(state, node.name))
    process = state.node(node.name).process
    if process is None or not process.alive:
        said = local.last_line(folder, node.name)
        again = f"; here: fifo cluster restart {which} {local.RECOVER}{folder.flag}"
        hint = again if local.RECOVER in said and not recover else ""
        raise CliError(f"{node.name} ended at once: {said}{hint}")
    idle = local.missing(state)
    role = _waits_for(folder, state, idle) if idle else role
    output.say(f"{node.name} started: pid {process.pid}, {role}")


def _waits_for(folder: ClusterFolder, state: ClusterState, idle: list[NodeState]) -> str:
    """What a node lacks for a leader, and the commands that give it."""
    count = len(idle) - (len(state.nodes) - 1) // 2
    first = idle[0]
    number = state.nodes.index(first) + 1
    verb = "resume" if first.process is not None and first.process.alive else "restart"
    flag = folder.flag
    return (
        f"waits for {'another node' if count == 1 else f'{count} other nodes'};"
        f" {verb} {first.name}: fifo cluster {verb} {number}{flag}; or all at once, with their"
        f" data: fifo cluster stop{flag} && fifo cluster start{flag}"
    )


@app.command(epilog="Example: fifo cluster logs 1 -f")
def logs(
    which: Which,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it grows.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="From the beginning.")] = False,
    directory: Folder = FOLDER_DEFAULT,
) -> None:
    """Print the end of one node's log."""
    folder = ClusterFolder(directory)
    path = folder.log_path(folder.require().node(which).name)
    try:
        _print_log(path, follow=follow, everything=everything)
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from None


def _start(
    folder: ClusterFolder,
    config: ClusterConfig,
    url: str | None,
    detach: bool,
    interrupts: local.Interrupts,
) -> View:
    """Start and wait; whatever goes wrong, no node is left behind."""
    options = _who_asks(state_of(config), url)
    try:
        state = local.start_all(folder, config, detach=detach)
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
    """Without what is only of use inside the command line."""
    inside = ("knows", "error", "ready")
    nodes = [{k: v for k, v in node.items() if k not in inside} for node in view["nodes"]]
    return {**view, "nodes": nodes}


def _print_nodes(view: View) -> None:
    output.print_table(
        ("node", "role", "pid#", "client", "peer", "http"),
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
    output.say("")
    stop_with = f"fifo cluster stop{folder.flag}" if detach else "Ctrl-C"
    output.say(f"url {view['url']}; {stop_with} stops all nodes")


def _print_log(path: Path, *, follow: bool, everything: bool) -> None:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0 if everything else max(0, size - LOG_TAIL_BYTES))
        if file.tell():
            file.readline()  # The first line was probably cut in the middle.
        while True:
            chunk = file.read(LOG_TAIL_BYTES)
            if chunk:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
            elif not follow:
                return
            else:
                let_pass(POLL_S)
