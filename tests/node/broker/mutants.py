"""Plausible bugs of the broker: a test of its parts must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from node.broker.connections.connection import Connection
from node.broker.connections.input_turns import InputTurns, Share
from tests.mutants.hunting import Hunt, Mutant, named, scenario
from tests.mutants.switch import Switch, edited
from tests.node.broker import test_fair_turns as turns


def _test(work: Callable[[], Coroutine[Any, Any, None]]) -> Hunt:
    """A test of the broker, on a loop of its own."""
    return scenario(lambda: asyncio.run(asyncio.wait_for(work(), 10.0)), named(work))


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a share of a client has no end": (
        edited(Share, "spend", "self.items >= self._items or now >= self._until", "False"),
        _test(turns.test_one_client_gets_its_share_and_then_what_a_turn_has_room_for),
    ),
    "the time of a share is not looked at": (
        edited(Share, "spend", " or now >= self._until", ""),
        _test(turns.test_a_share_ends_when_its_time_is_over),
    ),
    "a turn of the loop has room for every share": (
        edited(InputTurns, "_turn", "self._waiting and self._left", "self._waiting"),
        _test(turns.test_one_client_gets_its_share_and_then_what_a_turn_has_room_for),
    ),
    "new connections have shares of their own beyond the turn": (
        edited(InputTurns, "arrived", "not self._left or ", ""),
        _test(turns.test_all_clients_of_one_turn_share_its_time),
    ),
    "a client is served until it has nothing left": (
        edited(
            InputTurns,
            "_turn",
            "self._waiting.append(connection)",
            "self._waiting.appendleft(connection)",
        ),
        _test(turns.test_clients_are_served_round_robin),
    ),
    "a client is read while its frames wait": (
        edited(Connection, "pause_for_turn", "self._transport.pause_reading()", "pass"),
        _test(turns.test_one_client_gets_its_share_and_then_what_a_turn_has_room_for),
    ),
    "frames are handled though too many are unanswered": (
        edited(Connection, "handle", "self.open and not self._reading_stopped", "self.open"),
        _test(turns.test_frames_behind_too_many_unanswered_requests_wait_undecoded),
    ),
}

MUTANTS = tuple(
    Mutant("broker", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
