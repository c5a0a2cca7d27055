"""The configurations of one member's log: which one is the newest, and which one holds at an entry.

A configuration counts from the moment that its entry is in the log, and no more where the entry is
cut off again. Owns the list of them. Must not know where entries come from, nor what follows from a
configuration: that is for `changing.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.raft.configuration import Configuration, Member, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.raft.config import RaftConfig


def first_of(config: RaftConfig) -> Configuration:
    """The configuration that holds while the log has none, number 0: what the node was given."""
    addresses = dict(config.peers)
    if not config.joins:
        addresses[config.name] = config.address or config.bind
    voters = (
        Member(name, addresses[name], *config.clients.get(name, ("", "")), journal=b"")
        for name in sorted(addresses)
    )
    return Configuration(0, tuple(voters))


class Configurations:
    """The configurations that still matter, with the index of the entry of each, ascending."""

    def __init__(self, first: Configuration) -> None:
        self.first = first
        self._known = [(0, first)]

    def __repr__(self) -> str:
        return f"<Configurations newest {self.newest.number} at entry {self.newest_index}>"

    @property
    def newest(self) -> Configuration:
        """The one that counts."""
        return self._known[-1][1]

    @property
    def newest_index(self) -> int:
        """The index of its entry, or of the snapshot that holds it; 0: it came with the start."""
        return self._known[-1][0]

    def at(self, index: int) -> Configuration:
        """The one that held when this entry was the last."""
        return next(one for at, one in reversed(self._known) if at <= index)

    def since(self, index: int) -> Iterator[Configuration]:
        """The one that held at this entry, and all later ones."""
        yield self.at(index)
        for at, one in self._known:
            if at > index:
                yield one

    def packed_at(self, index: int) -> bytes:
        """The same as `at`, as a snapshot of this entry holds it."""
        found = self.at(index)
        return encode(found) if found.number else b""

    def append(self, index: int, configuration: Configuration) -> None:
        """Count this one from now on: its entry is in the log."""
        self._known.append((index, configuration))

    def truncate(self, first: int) -> bool:
        """Entry `first` and later ones were cut off. True where another one counts."""
        before = self.newest_index
        self._known = [one for one in self._known if one[0] < first]
        return self.newest_index != before

    def restart(self, index: int, configuration: Configuration, last_index: int) -> bool:
        """Begin with a snapshot of entry `index`, in a log that ends with `last_index`. True where
        another one counts."""
        before = self.newest
        later = [one for one in self._known if index < one[0] <= last_index]
        self._known = [(index, configuration), *later]
        return self.newest != before

    def forget(self, index: int) -> None:
        """Nothing from before the one that held at this entry is asked for any more."""
        held = self.at(index)
        while self._known[0][1] is not held:
            del self._known[0]
