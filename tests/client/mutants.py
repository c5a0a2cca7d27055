"""Plausible bugs of the client: a test with a scripted or a real node must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fifo.client.consuming.settler import Settler
from tests.client import test_second_settlements as second
from tests.mutants.hunting import Hunt, Mutant, named, scenario
from tests.mutants.switch import Switch, edited


def _test(work: Callable[..., Coroutine[Any, Any, None]], *values: Any) -> Hunt:
    """A test of the client, on a loop of its own."""
    return scenario(lambda: asyncio.run(work(*values)), named(work))


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a second settlement is answered from memory": (
        edited(
            Settler,
            "_second",
            "first.followers.append(follower)\n        return SENT",
            "return SettleResult(Status.ALREADY_SETTLED)",
        ),
        _test(second.test_a_second_settlement_by_the_same_verb_joins_the_first, "ack"),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("client", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
