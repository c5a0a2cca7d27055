"""The plain checkers' score: what breaks a rule is caught, and what is harmless raises no alarm."""

from __future__ import annotations

from functools import cache

import pytest

from tests.jepsen.checkers import RULES
from tests.jepsen.score.mutation import HARMLESS, UNSEEN
from tests.jepsen.score.page import page, wrong
from tests.jepsen.score.recording import goods
from tests.jepsen.score.scoring import MUTATIONS, Copy, Scored, copies, parts_of, plain, score
from tests.jepsen.score.tape import Good, NotHere, Tape

pytestmark = pytest.mark.slow


@cache
def made() -> tuple[Copy, ...]:
    return tuple(copies(parts_of(goods())))


def scored(name: str) -> list[Scored]:
    """Score one mutation by the plain checkers."""
    return score([copy for copy in made() if copy.mutation.name == name], plain)


@pytest.mark.slow
def test_the_plain_checkers_catch_every_mutation_and_raise_no_false_alarm() -> None:
    assert wrong({"plain": score(list(made()), plain)}) == []


def test_every_part_of_a_recorded_run_keeps_every_rule() -> None:
    parts = {
        f"{kind} {number}": part.events
        for kind, some in parts_of(goods()).items()
        for number, part in enumerate(some)
    }
    assert {name: found for name, found in plain(parts).items() if found} == {}


def test_every_mutation_has_a_place_in_a_recorded_run() -> None:
    assert {copy.mutation.name for copy in made()} == set(MUTATIONS)


def test_there_are_more_than_sixty_mutations_and_some_of_every_rule() -> None:
    rules = [mutation.rule for mutation in MUTATIONS.values()]
    assert set(rules) == {*RULES, HARMLESS, UNSEEN}
    assert sum(rule in RULES for rule in rules) > 60
    assert all(mutation.says for mutation in MUTATIONS.values())


@pytest.mark.parametrize(
    "name",
    [
        "failure before the first attempt",
        "settled by a token never delivered",
        "dead letter acked by its source token",
        "delivery that is missing",
    ],
)
def test_what_once_escaped_is_caught_in_every_kind_of_run_that_has_a_place(name: str) -> None:
    found = scored(name)
    assert len({one.copy.run for one in found}) >= 2
    assert all(one.right for one in found)


WANTED = {
    *(f"settle {verb} ok" for verb in ("ack", "nack", "release", "terminate")),
    "settle ack lock_lost", "settle ack sent", "dead_lettered", "max_deliveries", "terminated",
    "publish delay_s", "publish ttl_s", "publish key", "publish dedup_id", "renew ok", "redrive ok",
    "lock_lost ok", "cancel ok", "drop ok", "left ok", "state ok", "checkout ok", "lasting",
    "failures 1", "get", "reserve", "open_producer",
    "kill", "partition", "client_kill", "client_pause", "heal",
}  # fmt: skip
"""In the recorded runs: verbs, outcomes, kinds of messages, calls, and faults."""


def test_the_recorded_runs_have_every_verb_and_outcome_and_faults() -> None:
    assert WANTED - {what for good in goods() for what in _seen(good)} == set()


def _seen(good: Good) -> set[str]:
    found = set()
    for event in good.events:
        value, f = event["value"], event["f"]
        found.add(f"{f} {event['type']}")
        found |= {f"{f} {field}" for field, known in value.items() if known is not None}
        found.add(f"{f} {value.get('verb')} {value.get('status')}")
        found |= {str(value.get(name)) for name in ("status", "reason", "what", "fault")}
        found.add(f"failures {value.get('failures')}")
        found |= {"lasting"} if value.get("lasting") else set()
    return found


def test_a_change_leaves_the_good_history_alone_and_time_and_index_in_order() -> None:
    good = goods()[0]
    before = [dict(event) for event in good.events]
    for mutation in MUTATIONS.values():
        tape = Tape(good)
        try:
            if mutation.of_history is not None:
                mutation.of_history(tape)
            if mutation.of_message is not None:
                mutation.of_message(tape, good.lives[0])
        except NotHere:
            continue
        times = [event["time"] for event in tape.events]
        assert times == sorted(times), mutation.name
        assert [event["index"] for event in tape.events] == list(range(len(times)))
    assert good.events == before


def test_the_page_says_what_escaped() -> None:
    breaking = scored("never delivered")[0]
    results = {"plain": [breaking], "Spark": [Scored(breaking.copy, set())]}
    assert "plain caught 1 of 1 copies; Spark caught 0 of 1 copies" in page(results)
    escaped, differ = wrong(results)
    assert escaped == f"Spark: {breaking.copy.name} (S1): found nothing"
    assert differ.startswith(f"the checkers differ in {breaking.copy.name}: ")
