"""A reply to a reader of messages reports whether the step ended with ready ones unexamined.

A step looks at 500 messages that have expired, or at 2 500 that wait for their key, and has then no
budget left. Owns get, reserve and a credit that is drained; the delivery to subscribed consumers
continues with the next entry (`test_bounds.py`).
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from fifo.machine import commands, invariants, limits, replies
from fifo.machine.state import records
from fifo.words import bounds
from tests.support.machine import Bench

TAKING: dict[str, Callable[[int], commands.Command]] = {
    "reserve": lambda session: commands.Reserve(1, 1, 1, session),
    "get": lambda session: commands.Get(session, "q", 1, bounds.LOCK_MS_MAX),
    "drain": lambda session: commands.Credit(session, 1, 1, drain=True),
}
"""Commands that take one message, by the first consumer there is."""


def takes(verb: str, **spec: Any) -> tuple[Bench, commands.Command]:
    """An empty queue, and the command that takes from it."""
    bench = Bench(check=False)
    bench.declare("q", **spec)
    session = bench.attach()
    if verb == "reserve":
        bench.do(commands.OpenDurable("q", "reader", {"lock_ms": bounds.LOCK_MS_MAX}))
    elif verb == "drain":
        bench.subscribe(session, "q", pull=True, prefetch=100, lock_ms=bounds.LOCK_MS_MAX)
    return bench, TAKING[verb](session)


def until_found(bench: Bench, command: commands.Command) -> tuple[int, list[str]]:
    """Repeat the request while there is more, as the broker does: (number of requests, bodies)."""
    for times in range(1, 200):
        reply = bench.do(command)
        assert isinstance(reply, (replies.Got, replies.Reserved, replies.Credited)), reply
        if bench.bodies() or not reply.more:
            return times, bench.bodies()
        if isinstance(reply, replies.Credited):
            assert reply.left == 1, "what was not used is to be asked for again"
            assert bench.machine.state.consumers[1].credit == 0, "a drain leaves its credit"
    raise AssertionError("there is always more")


def test_a_reader_of_only_expired_messages_learns_that_there_may_be_more() -> None:
    count = 2 * limits.STEP_MESSAGES // limits.LEAVE_COST
    for verb in TAKING:
        bench, command = takes(verb)
        bench.publish(1, "q", *[b"late"] * (count + 7), ttls=[10] * (count + 7))
        bench.publish(1, "q", b"live")
        bench.advance(11)
        assert until_found(bench, command) == (3, ["live"]), verb
        assert until_found(bench, command) == (1, []), verb
        invariants.check(bench.machine.state)


def test_a_reader_of_only_waiting_messages_learns_that_there_may_be_more() -> None:
    count = 2 * limits.STEP_MESSAGES // limits.RECORD_COST
    for verb in TAKING:
        bench, command = takes(verb, ordering="key")
        bench.publish(1, "q", *[b"one"] * (count + 8), keys=[b"k"] * (count + 8))
        bench.publish(1, "q", b"other", keys=[b"l"])
        assert until_found(bench, command) == (1, ["one"]), verb
        assert until_found(bench, command) == (3, ["other"]), verb
        assert until_found(bench, command) == (1, []), "all that is left waits for its key"
        invariants.check(bench.machine.state)


@pytest.mark.parametrize("verb", ["reserve", "get"])
def test_a_reader_that_got_its_full_count_learns_nothing_of_the_rest(verb: str) -> None:
    bench, command = takes(verb)
    bench.publish(1, "q", *[b""] * 2)
    reply = bench.do(command)
    assert isinstance(reply, (replies.Got, replies.Reserved))
    assert (reply.count, reply.more) == (1, False)


def drained(seed: int, verb: str) -> list[str]:
    """Take all sorts of messages from a queue, one by one, until none is ready."""
    rng = random.Random(seed)
    bench, command = takes(verb, ordering=rng.choice(("none", "key")))
    bodies = [f"{place}" for place in range(80)]
    ttls = [rng.choice((5, bounds.DURATION_MS_MAX)) for _ in bodies]
    keys = [rng.choice((b"", b"a", b"b", b"c", b"d")) for _ in bodies]
    bench.publish(1, "q", *bodies, ttls=ttls, keys=keys)
    if verb == "get":
        bench.do(commands.Get(1, "q", 20, bounds.LOCK_MS_MAX))
        bench.nack(1, (1, bench.machine.state.consumers[1].held), delay_ms=0)
    bench.advance(6)
    came: list[str] = []
    while True:
        _, found = until_found(bench, command)
        if not found:
            invariants.check(bench.machine.state)
            return came
        came += found


@pytest.mark.slow
@pytest.mark.parametrize("verb", TAKING)
def test_small_steps_find_what_a_large_one_finds(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [drained(seed, verb) for seed in range(20)]
    assert any(whole)
    for budget in (1, 7, 41):
        monkeypatch.setattr(records, "BATCH_CHECKOUT_MESSAGES", budget)
        assert [drained(seed, verb) for seed in range(20)] == whole
