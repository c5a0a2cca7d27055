"""Dates of what this node has seen change: lost nodes, a lost leader, states of consumers.

Owns dates that no state has: a state says how things are, an operator asks since when. They are of
this node's own looks, about a second apart, and begin with its start. Must not know the page.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from node.http import limits


class Conditions:
    """Conditions that hold at the moment, each with the wall time at which it was first seen."""

    def __init__(self) -> None:
        self._since_ms: dict[Hashable, int] = {}

    def look(self, now_ms: int, holding: Iterable[Hashable]) -> None:
        """Note what holds now: the rest has ended."""
        known = self._since_ms
        self._since_ms = {one: known.get(one, now_ms) for one in holding}

    def since_ms(self, condition: Hashable) -> int | None:
        """When this was first seen, if it holds."""
        return self._since_ms.get(condition)


class ConsumerStates:
    """The states of the consumers of all queues, each with the time of its change."""

    def __init__(self) -> None:
        self._changes: dict[int, list[tuple[int, str]]] = {}

    def look(self, now_ms: int, states: Mapping[int, str]) -> None:
        """Note the state of each consumer; those that are not named are gone."""
        for number in self._changes.keys() - states.keys():
            del self._changes[number]
        for number, state in states.items():
            changes = self._changes.get(number)
            if changes is None:
                if len(self._changes) < limits.CONSUMERS_WATCHED_MAX:
                    self._changes[number] = [(now_ms, state)]
            elif changes[-1][1] != state:
                changes.append((now_ms, state))
                del changes[: -limits.CONSUMER_CHANGES_MAX]

    def changes(self, number: int) -> list[dict[str, Any]]:
        """The last states of a consumer, the oldest first, each with its beginning."""
        return [
            {"since_ms": since_ms, "state": state}
            for since_ms, state in self._changes.get(number, ())
        ]
