"""The version of the cluster: what each member can speak, what is used, what finishing turns on.

Owns the decision whether the version may be raised, and what follows on this node when it was. The
versions themselves are `fifo/words/versions.py`; what members say comes from the peer port. Must
not know frames, nor how a command gets into the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fifo.machine.contract import Machine
from fifo.words import versions
from fifo.words.versions import Version
from node.broker.about import release
from node.peers.versions import PeerVersions, Said

logger = logging.getLogger(__name__)

NOTES: Final = "versions"
"""The part of a node's notebook that is about versions."""

SILENT: Final = Said(versions.SILENT_RELEASE, versions.SILENT)
"""A member that says nothing is taken for one of 0.1.0."""

UNCOUNTED: Final = (
    "{0} does not count: it recovers, or has a journal that the others do not know"
    " (event=member_not_counted names the fix)"
)


def own() -> Said:
    """Describe this program."""
    return Said(release(), versions.CAN)


@dataclass(frozen=True, slots=True)
class Finding:
    """The version that the members have in common, and why it is not raised to that, or no higher:
    a line for each member that is in the way."""

    target: Version
    obstacles: tuple[str, ...]


class Upgrade:
    """The versions of one node's cluster, as this node knows them."""

    def __init__(
        self,
        node: str,
        members: Callable[[], Sequence[str]],
        peers: PeerVersions,
        *,
        use_protocol: Callable[[int], None],
        uncounted: Callable[[], Sequence[str]],
        automatic: bool = False,
    ) -> None:
        """`members`: the names of all, as they are now; `use_protocol` has the peer port speak a
        version; `uncounted`: those that the leader does not count; `automatic`: the operator
        wants each version raised as soon as it can be."""
        self._node = node
        self._members = members
        self._peers = peers
        self._use_protocol = use_protocol
        self._uncounted = uncounted
        self.automatic = automatic
        self.used = versions.FIRST
        """The version that this node goes by."""

    @property
    def _others(self) -> tuple[str, ...]:
        return tuple(name for name in self._members() if name != self._node)

    def follow(self, machine: Machine) -> None:
        """Go by the version of the state, where that is another one than before."""
        if machine.version == self.used:
            return
        self.used = machine.version
        self._use_protocol(versions.version(self.used).uses["peer"])
        logger.info("event=version version=%d", self.used)

    def of(self, name: str) -> Said:
        """Ranges that a member says, or said last; of one that was never heard, those of 0.1.0."""
        return self._peers.own if name == self._node else self._peers.known.get(name, SILENT)

    def judged(self) -> Finding:
        """Look whether the version may be raised now, and how far."""
        said = {name: self.of(name) for name in (self._node, *self._others)}
        target = versions.newest_common([one.ranges for one in said.values()])
        newest = versions.VERSIONS[-1]
        if target.number <= self.used:
            if self.used >= newest.number:
                return Finding(versions.version(self.used), ())
            return Finding(target, tuple(self._unable(name, newest) for name in self._behind()))
        missing = [name for name in self._others if name not in self._peers.heard]
        obstacles = [self._missing(name) for name in missing]
        obstacles += [UNCOUNTED.format(name) for name in self._uncounted() if name not in missing]
        return Finding(target, tuple(obstacles))

    @property
    def knows_older(self) -> bool:
        """Whether a member ran an older release when it was heard last: its cluster may go back."""
        return any(name in self._peers.known for name in self._behind())

    def _behind(self) -> list[str]:
        newest = versions.VERSIONS[-1]
        return [name for name in self._others if not versions.can(self.of(name).ranges, newest)]

    def _unable(self, name: str, wanted: Version) -> str:
        if name not in self._peers.known:
            return f"{name} was never heard: start it with a release from {wanted.release} on"
        return (
            f"{name} runs {self.of(name).release or 'another release'}, which does not know version"
            f" {wanted.number}: install {wanted.release} or a later release on it"
        )

    def _missing(self, name: str) -> str:
        return (
            f"{name} is down (it last ran {self.of(name).release or 'another release'}): start it"
        )

    def view(self) -> dict[str, Any]:
        """All of this, for the status of this node."""
        found = self.judged()
        return {
            "used": self.used,
            "newest": versions.NEWEST,
            "can": _plain(versions.CAN),
            "uses": dict(versions.version(self.used).uses),
            "members": {
                name: {
                    "release": self.of(name).release,
                    "can": _plain(self.of(name).ranges),
                    "known": name in self._peers.known,
                    "connected": name in self._peers.heard,
                }
                for name in self._others
            },
            "finish": {
                "version": found.target.number,
                "turns_on": [
                    text
                    for one in versions.VERSIONS
                    if self.used < one.number <= found.target.number
                    for text in one.turns_on
                ],
                "obstacles": list(found.obstacles),
            },
        }


def _plain(ranges: versions.Ranges) -> dict[str, list[int]]:
    return {part: list(bounds) for part, bounds in ranges.items()}


def noted(known: Mapping[str, Said]) -> dict[str, Any]:
    """Plain form of what members said, for the notebook of this node."""
    return {name: [said.release, _plain(said.ranges)] for name, said in known.items()}


def remembered(notes: Mapping[str, Any], members: Sequence[str]) -> dict[str, Said]:
    """Read the notebook about members that there still are; what is ill-formed is left out."""
    found: dict[str, Said] = {}
    noted = notes.get(NOTES)
    if not isinstance(noted, dict):
        return found
    for name in members:
        match noted.get(name):
            case [str() as said, dict() as ranges] if all(map(_is_range, ranges.values())):
                found[name] = Said(
                    said, {part: (low, high) for part, (low, high) in ranges.items()}
                )
    return found


def _is_range(value: object) -> bool:
    return isinstance(value, list) and list(map(type, value)) == [int, int]
