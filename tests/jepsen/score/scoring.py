"""The score: every mutation of every recorded history, as a checker sees it.

Owns where a mutation is done, and what counts as caught. Must not know a checker: one is a function
from histories to what it found in each.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from tests.jepsen import checkers
from tests.jepsen.history import Event
from tests.jepsen.score.around import AROUND, HARMLESS_ONES
from tests.jepsen.score.counting import COUNTING
from tests.jepsen.score.delivering import DELIVERING
from tests.jepsen.score.mutation import HARMLESS, UNSEEN, Mutation, OfMessage
from tests.jepsen.score.tape import Good, Life, NotHere, Tape

MUTATIONS: dict[str, Mutation] = {**DELIVERING, **COUNTING, **AROUND, **HARMLESS_ONES}

Findings = set[tuple[str, str]]
"""Rules and subjects."""

Checker = Callable[[Mapping[str, list[Event]]], Mapping[str, Findings]]
"""A judge of several histories: its findings in each, by their names."""

PLACES = 1
"""Parts of the runs of one kind, drawn, that a mutation is made in."""

MESSAGES = 8
"""Of a part: enough for all that is about more than one, and few, for each copy is judged."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A part of a good history with one mutation."""

    mutation: Mutation
    run: str
    number: int
    events: list[Event]

    @property
    def name(self) -> str:
        """Of all copies this one."""
        return f"{self.mutation.name}|{self.run}|{self.number}"


@dataclass(frozen=True, slots=True)
class Scored:
    """The findings of a checker in a copy."""

    copy: Copy
    found: Findings

    @property
    def right(self) -> bool:
        """Whether it is what should be found: the rule, or nothing."""
        rules = {rule for rule, _ in self.found}
        rule = self.copy.mutation.rule
        return not rules if rule in (HARMLESS, UNSEEN) else rule in rules


def parts_of(goods: Iterable[Good]) -> dict[str, list[Good]]:
    """All runs in parts, by the kind of run."""
    found: dict[str, list[Good]] = defaultdict(list)
    for good in goods:
        found[good.kind] += good.parts(MESSAGES)
    return dict(found)


def copies(parts: Mapping[str, list[Good]]) -> Iterator[Copy]:
    """Each mutation of each kind of run that it can be made of."""
    for mutation in MUTATIONS.values():
        for run, some in parts.items():
            chance = random.Random(f"{mutation.name} {run}")
            drawn = islice(_changed(mutation, chance.sample(some, len(some)), chance), PLACES)
            for number, events in enumerate(drawn):
                yield Copy(mutation, run, number, events)


def _changed(
    mutation: Mutation, parts: Iterable[Good], chance: random.Random
) -> Iterator[list[Event]]:
    """A copy of each part that it can be made in."""
    for part in parts:
        for change in _changes(mutation, part, chance):
            tape = Tape(part)
            try:
                change(tape)
            except NotHere:
                continue
            yield tape.events
            break


def _changes(
    mutation: Mutation, part: Good, chance: random.Random
) -> Iterator[Callable[[Tape], None]]:
    """Changes to try, in an order that is drawn."""
    of_message = mutation.of_message
    if mutation.of_history is not None:
        yield mutation.of_history
    if of_message is not None:
        for life in chance.sample(part.lives, len(part.lives)):
            yield _of(of_message, life)


def _of(change: OfMessage, life: Life) -> Callable[[Tape], None]:
    return lambda tape: change(tape, life)


def plain(histories: Mapping[str, list[Event]]) -> dict[str, Findings]:
    """As the plain checkers see them."""
    return {
        name: {(one.rule, one.subject) for one in checkers.find(events)}
        for name, events in histories.items()
    }


def score(made: list[Copy], checker: Checker) -> list[Scored]:
    """The findings of a checker in all of them."""
    found = checker({copy.name: copy.events for copy in made})
    return [Scored(copy, found[copy.name]) for copy in made]
