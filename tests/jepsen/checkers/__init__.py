"""Rules that hold of any history (docs/history.md): one rule, one function, for every recorder.

Owns the list of rules and the verdict. `find` gives all violations, `check` raises at the first:
the simulator and the fault suite use both, and the checker on Spark is held to `find`. Must not
know how a history was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from tests.jepsen.checkers.cluster import agreed, drained, ended_in_time, led, served
from tests.jepsen.checkers.counting import buried_once, counted, waited
from tests.jepsen.checkers.linearizable import linearizable
from tests.jepsen.checkers.order import in_order, one_active
from tests.jepsen.checkers.overtaken import delays_end, locks_end
from tests.jepsen.checkers.settling import fenced, no_resurrection, not_taken_early, one_holder
from tests.jepsen.checkers.sorting import SortedHistory, Violation
from tests.jepsen.checkers.storing import no_loss, no_phantom, one_copy
from tests.jepsen.history import Event

Rule = Callable[[SortedHistory], Iterator[Violation]]


def _both(first: Rule, second: Rule) -> Rule:
    return lambda history: chain(first(history), second(history))


RULES: dict[str, Rule] = {
    "S1": no_loss,
    "S2": no_phantom,
    "S2b": one_copy,
    "S3": no_resurrection,
    "S4": one_holder,
    "S5": fenced,
    "S6": counted,
    "S7": buried_once,
    "S8": _both(waited, delays_end),
    "S9": _both(not_taken_early, locks_end),
    "S10": one_active,
    "S11": in_order,
    "S12": agreed,
    "V1": led,
    "V2": served,
    "V3": drained,
    "V4": ended_in_time,
}
"""Every rule of one history that other checkers share. V5 is about a whole run: `sometimes`."""


def find(events: Iterable[Event]) -> list[Violation]:
    """Everything in this history that should not be, by the shared rules."""
    history = SortedHistory(events)
    return [violation for rule in RULES.values() for violation in rule(history)]


def search(events: Iterable[Event]) -> list[Violation]:
    """Violations beyond those, from the search for an order of each message's lock."""
    return list(linearizable(SortedHistory(events)))


def check(events: Iterable[Event], *, where: str = "") -> None:
    """Raise AssertionError with what is wrong in this history, if anything is."""
    found = find(events)
    if found:
        more = "" if len(found) == 1 else f"\n(and {len(found) - 1} more)"
        raise AssertionError(f"{where}{found[0]}{more}")


__all__ = ["RULES", "Rule", "SortedHistory", "Violation", "check", "find", "search"]
