"""The members of one node's cluster: by its file until the log has a configuration, then by that.

Owns how a request becomes a change for the log, and what operators see of members and of a change
under way. The log decides (`node/raft/configuration.py`). Must not know frames, nor connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fifo.wire.membership import ChangeMembers
from fifo.words.versions import MEMBERS_CHANGE
from node.config import Address, NodeConfig, parse_address
from node.peers.guests import Guest
from node.peers.message import Message
from node.raft import (
    Change,
    ChangeRefused,
    Configuration,
    ConfigurationDamaged,
    Member,
    Place,
    RaftNode,
    decode,
    encode,
)
from node.roster import NOWHERE, Roster

logger = logging.getLogger(__name__)

NOTES: Final = "configuration"
"""The part of a node's notebook that is the newest configuration it has seen."""

_ACTIONS: Final = ("add", "remove", "replace", "move", "undo")


class Members:
    """The members that a node knows of, and the changes that it makes while it leads."""

    def __init__(
        self,
        me: NodeConfig,
        roster: Roster,
        raft: RaftNode,
        guests: Callable[[], Mapping[str, Guest]],
        version: Callable[[], int],
    ) -> None:
        """`me`: this node by its file; `guests`: the nodes that wait to be added, by name, as they
        say it of themselves; `version`: the version that the cluster uses."""
        self._me = me
        self._guests = guests
        self._raft = raft
        self._version = version
        self.roster = roster

    # --- changes ---

    def change(self, request: ChangeMembers) -> Configuration:
        """Begin what was asked for. Raises `ChangeRefused`."""
        action, name = request.action, request.member
        if action not in _ACTIONS:
            raise ChangeRefused(f"the action {action!r} is none; it is one of {_list(_ACTIONS)}")
        if action == "undo":
            return self._raft.undo_change()
        if name is None:
            raise ChangeRefused(f"{action} names no member; give the name of one")
        if action == "move":
            return self._move(name, request)
        if action == "remove":
            return self._begin(Change(remove=(name,)))
        if action == "replace" and request.replaces is None:
            raise ChangeRefused(f"replace names no member that {name!r} replaces; give its name")
        gone = (request.replaces,) if action == "replace" and request.replaces else ()
        return self._begin(Change(add=(self._joining(name, request),), remove=gone))

    def _begin(self, change: Change) -> Configuration:
        found = self._raft.change_members(change)
        logger.info(
            "event=members_change number=%d wanted=%s", found.number, ",".join(found.wanted)
        )
        return found

    def _joining(self, name: str, request: ChangeMembers) -> Member:
        """The node that is to be added, by its own words."""
        waiting_now = self._waiting()
        guest = waiting_now.get(name)
        if guest is None:
            waiting = _list(tuple(waiting_now)) or "no node"
            own = self.roster.find(self._me.name) or self._me
            was_removed = any(name == gone.name for gone in self._raft.configuration.removed)
            first = "it was removed, so empty its folder, and " if was_removed else ""
            raise ChangeRefused(
                f"{name!r} does not wait to be added (there waits: {waiting}); {first}start it on "
                f"its machine: fifo serve --config cluster.toml --node {name} --join {own.peer}"
            )
        said = {"peer": guest.peer, "client": guest.client, "http": guest.http}
        for kind, address in said.items():
            wanted = getattr(request, kind)
            if wanted is not None and wanted != address:
                raise ChangeRefused(
                    f"{name!r} says that its {kind} address is {address}, not {wanted}; give that, "
                    "or correct its cluster.toml"
                )
        peer = _address("peer", guest.peer)
        return Member(
            name,
            (peer.host, peer.port),
            str(_address("client", guest.client)),
            str(_address("http", guest.http)),
            guest.journal,
        )

    def _waiting(self) -> dict[str, Guest]:
        """The nodes that could be added: a removed one comes back with another journal only."""
        was_removed = self._raft.configuration.was_removed
        return {
            name: guest for name, guest in self._guests().items() if not was_removed(guest.journal)
        }

    def _move(self, name: str, request: ChangeMembers) -> Configuration:
        before = self.roster.find(name)
        if before is None:
            raise ChangeRefused(f"{name!r} is no member; there are: {_list(self.roster.names)}")
        if request.peer is None and request.client is None and request.http is None:
            raise ChangeRefused(f"no address of {name!r} is given; give peer, client or http")
        peer = _address("peer", request.peer or str(before.peer))
        return self._raft.move_member(
            name,
            (peer.host, peer.port),
            str(_address("client", request.client or str(before.client))),
            str(_address("http", request.http or str(before.http))),
        )

    # --- what is known ---

    def take(self, configuration: Configuration) -> None:
        """Go by another configuration."""
        if configuration.number:
            self.roster.nodes = nodes_of(configuration, self.roster)

    def compare_with_file(self, *, joins: bool) -> None:
        """Say in one line where the file has other members than the log, or other addresses; the
        file of a node that `joins` is about itself alone."""
        configuration = self._raft.configuration
        if not configuration.number:
            return
        log = nodes_of(configuration, self.roster)
        file = self.roster.nodes
        if joins:
            file, log = (self._me,), tuple(one for one in log if one.name == self._me.name)
        here, there = set(map(_place, file)), set(map(_place, log))
        if log and here != there:
            logger.warning(
                "event=members_differ file=%s log=%s advice=the log holds: bring cluster.toml in "
                "line with `fifo member list`, or move a member by `fifo member move`",
                "; ".join(sorted(here - there)) or "-",
                "; ".join(sorted(there - here)) or "-",
            )

    def notes(self) -> dict[str, Any]:
        """The newest configuration, for the notebook of this node: it begins there where its file
        names no member but itself."""
        configuration = self._raft.configuration
        return {NOTES: encode(configuration).hex()} if configuration.number else {}

    def about(self) -> Message:
        """The addresses of this node, as it says them to those that may add it."""
        me = self._me
        return {
            "type": "about",
            "peer": str(me.peer),
            "client": str(me.client),
            "http": str(me.http),
        }

    def answer(self) -> Message:
        """The answer to a node that asks for the configuration."""
        reason = why_none_changes(self._version())
        # Before the first one the log has none: what is asked for is where the members are.
        known = replace(self._raft.configuration, number=max(1, self._raft.configuration.number))
        configuration = b"" if reason else encode(known)
        return {"type": "members", "reason": reason, "configuration": configuration}

    def view(self) -> dict[str, Any]:
        """All of this, for the status of this node."""
        configuration, raft = self._raft.configuration, self._raft
        learners = {member.name for member in configuration.learners}
        progress = raft.change_progress()
        return {
            "number": configuration.number,
            "committed": raft.configuration_committed,
            "members": [
                {
                    "name": node.name,
                    "peer": str(node.peer),
                    "client": str(node.client),
                    "http": str(node.http),
                    "learner": node.name in learners,
                }
                for node in self.roster.nodes
            ],
            "committed_term": raft.committed_term,
            "wanted": list(configuration.wanted),
            "change": _shown(configuration.change) if configuration.wanted else None,
            "ended": [_shown(place) | {"done": done} for place, done in configuration.ended],
            "waits_for": None if progress is None else progress.waits_for,
            "learners": [
                {
                    "name": one.name,
                    "connected": one.connected,
                    "behind": max(0, one.last_index - one.match_index),
                    "level": one.level,
                }
                for one in (() if progress is None else progress.learners)
            ],
            "waiting": [
                {"name": guest.name, "peer": guest.peer} for guest in self._waiting().values()
            ],
            "removed": [gone.name for gone in configuration.removed],
        }


def why_none_changes(version: int) -> str:
    """Why members cannot change in a cluster that uses this version; empty where they can."""
    if version >= MEMBERS_CHANGE:
        return ""
    return (
        f"members change from version {MEMBERS_CHANGE} on, and this cluster uses version "
        f"{version}: finish the upgrade first (`fifo upgrade finish`)"
    )


def remembered(notes: Mapping[str, Any]) -> Configuration | None:
    """Read the notebook of a node; None where it has no configuration."""
    noted = notes.get(NOTES)
    try:
        return decode(bytes.fromhex(noted)) if isinstance(noted, str) else None
    except (ValueError, ConfigurationDamaged) as error:
        logger.warning("event=notebook_unreadable error=%s", error)
        return None


def _shown(place: Place) -> dict[str, Any]:
    return {"term": place.term, "index": place.index}


def _place(node: NodeConfig) -> str:
    return f"{node.name} peer {node.peer} client {node.client} http {node.http}"


def nodes_of(configuration: Configuration, before: Roster) -> tuple[NodeConfig, ...]:
    """The members of a configuration as a file would have them; what one has not said of itself is
    as it was."""
    found = []
    for member in sorted(configuration.members, key=lambda one: one.name):
        old = before.find(member.name)
        peer = Address(*member.address)
        found.append(
            NodeConfig(
                name=member.name,
                client=_said(member.client, None if old is None else old.client, peer),
                peer=peer,
                http=_said(member.http, None if old is None else old.http, peer),
                data_dir=NOWHERE / member.name if old is None else old.data_dir,
            )
        )
    return tuple(found)


def _said(text: str, before: Address | None, otherwise: Address) -> Address:
    try:
        return parse_address(text)
    except ValueError:
        return otherwise if before is None else before


def _address(kind: str, text: str) -> Address:
    """An address that was given. Raises `ChangeRefused`."""
    try:
        found = parse_address(text)
    except ValueError as error:
        raise ChangeRefused(f"the {kind} address cannot be: {error}") from None
    if found.is_wildcard:
        raise ChangeRefused(
            f"the {kind} address {found} is that of every machine; name a host that others can dial"
        )
    return found


def _list(names: Sequence[str]) -> str:
    return ", ".join(sorted(names))
