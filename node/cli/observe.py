"""Status queries to every node, for ``fifo status`` and ``fifo cluster status``.

Owns the view of a cluster as plain data. A node that does not answer in time is ``down`` in it,
whatever its peers report. Must not start or signal processes.
"""

from __future__ import annotations

import asyncio
import http.client
from typing import TYPE_CHECKING, Any, Literal

import fifo
import fifo.client
from node.cli.errors import one_line
from node.cli.limits import LOGIN_TIMEOUT_S, OBSERVE_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fifo.client.connection.options import Options
    from node.cli.state import ClusterState, NodeState

View = dict[str, Any]
"""Plain data for JSON: keys as in the contract's `fifo cluster status --json`."""


async def observe_all(
    addresses: Iterable[str],
    timeout: float = OBSERVE_TIMEOUT_S,
    options: Options | None = None,
) -> list[View]:
    """Query each node for its status, in the given order; a silent one is ``down``.

    `timeout` in seconds per node; `options`: credentials and TLS.
    """
    return await asyncio.gather(*(_observe(address, timeout, options) for address in addresses))


async def observe_members(options: Options) -> dict[str, View]:
    """Query the nodes of the URL, and the members that they name; by address, those of the URL
    first. A node of the URL may be there under another address than its own."""
    found = await observe_all(options.addresses, options=options)
    seen = dict(zip(options.addresses, found, strict=True))
    up = [view for view in found if view["role"] != "down"]
    names = {view.get("node") for view in up}
    others = [
        address
        for name, address in known_members(up).items()
        if name not in names and address not in seen
    ]
    return seen | dict(zip(others, await observe_all(others, options=options), strict=True))


def known_members(up: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Name and client address of each member, by the leader of the newest term among these, else by
    one of the others."""
    newest = max(up, key=lambda view: (view["role"] == "leader", view.get("term") or 0), default={})
    return dict(newest.get("members") or {})


def strangers(answers: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Those of the nodes that answered which are no members, by name: removed, or not added yet."""
    known = known_members(answers)
    return {str(one["node"]): one for one in answers if known and one["node"] not in known}


async def cluster_view(
    state: ClusterState, timeout: float = OBSERVE_TIMEOUT_S, options: Options | None = None
) -> View:
    """Query the local cluster; the form of `fifo cluster status --json` and fields of our own.

    `timeout` and `options` as in `observe_all`.
    """
    seen = await observe_all((node.client for node in state.nodes), timeout, options)
    nodes = [_node_view(node, view) for node, view in zip(state.nodes, seen, strict=True)]
    return {"url": state.url, "leader": leader_of(nodes), "nodes": nodes}


def leader_of(nodes: Sequence[View]) -> str | None:
    """Name of the node that claims leadership in the highest term; None without one."""
    leaders = [view for view in nodes if view["role"] == "leader"]
    return max(leaders, key=lambda view: view["term"])["name"] if leaders else None


def all_follow(view: View) -> bool:
    """Whether there is a leader and every node that answers knows it."""
    answered = [node for node in view["nodes"] if node["role"] != "down"]
    return view["leader"] is not None and all(n["knows"] == view["leader"] for n in answered)


async def is_healthy(node: NodeState, what: Literal["live", "ready"]) -> bool:
    """Ask a node's HTTP health endpoint, which needs no credentials."""
    return await asyncio.to_thread(_is_healthy, node.http, what)


def _is_healthy(address: str, what: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=OBSERVE_TIMEOUT_S)
    try:
        connection.request("GET", f"/health/{what}")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


async def _observe(address: str, timeout: float, options: Options | None) -> View:
    if options is not None and options.has_secret:
        timeout = max(timeout, LOGIN_TIMEOUT_S)
    try:
        status = await fifo.client.observe(address, timeout, options=options)
    except (fifo.FifoError, OSError, TimeoutError) as error:
        refused = isinstance(error, PermissionError)
        return {"role": "down", "error": one_line(error), "refused": refused}
    return dict(status)


def _node_view(node: NodeState, seen: View) -> View:
    process = node.process
    return {
        "name": node.name,
        "role": seen["role"],
        "pid": None if process is None or not process.alive else process.pid,
        "client": node.client,
        "peer": node.peer,
        "http": node.http,
        "data_dir": node.data_dir,
        "state": "stopped" if process is None else process.state(),
        "term": seen.get("term"),
        "knows": seen.get("leader"),
        "error": seen.get("error"),
        "ready": False,
    }
