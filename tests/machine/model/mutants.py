"""Plausible bugs of the machine, put in one by one: the comparison with the model must notice each.

`python -m tests.machine.model.mutants` prints who was caught, after how many runs and entries, and
fails if one was not. A mutant is a function whose source is changed in one place; one whose place
is not there any more is an error, so the registry follows the code.
"""

import inspect
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from fifo.machine import (
    checkout,
    consumers,
    deadletter,
    dedup,
    locks,
    ordering,
    overflow,
    publish,
    ready,
    returns,
    sessions,
    settle,
    subscribe,
    ticking,
)
from tests.machine.model import driving

RUNS_MAX = 300
STEPS = 80


@dataclass(frozen=True)
class Mutant:
    """`function` of `module` with `old` replaced by `new`."""

    name: str
    module: ModuleType
    function: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "the floor of a new term is not applied",
        locks,
        "floor_of",
        "lagging and not session.disconnected",
        "False and not session.disconnected",
    ),
    Mutant(
        "a floor goes beyond max_lock",
        locks,
        "deadline_ms",
        "min(floor_ms, held.checkout_ms + consumer.max_lock_ms)",
        "floor_ms",
    ),
    Mutant(
        "a settlement does not clear the suspicion",
        settle,
        "after",
        "consumers.prove_alive(step, consumer)",
        "pass",
    ),
    Mutant(
        "a resume clears every suspicion",
        sessions,
        "_resume",
        "if consumer.suspicion == Suspicion.TIMEOUT_WHILE_DISCONNECTED:",
        "if consumer.suspicion:",
    ),
    Mutant(
        "a returned message goes to the front of its queue",
        ready,
        "returned_front",
        "best: int | None = queue.returned[0] if queue.returned else None",
        "best: int | None = queue.returned[-1] if queue.returned else None",
    ),
    Mutant(
        "a disconnect is no failure",
        returns,
        "_return_one",
        "cause in (Cause.NACK, Cause.DISCONNECT)",
        "cause in (Cause.NACK,)",
    ),
    Mutant(
        "count_timeouts is not asked",
        returns,
        "_return_one",
        "cause == Cause.TIMEOUT and spec.count_timeouts",
        "cause == Cause.TIMEOUT",
    ),
    Mutant(
        "the backoff is one failure ahead",
        returns,
        "_return_one",
        "_delay_ms(queue, consumer, cause, before.failures, delay_ms)",
        "_delay_ms(queue, consumer, cause, failures, delay_ms)",
    ),
    Mutant(
        "max_deliveries is off by one",
        returns,
        "_return_one",
        "failures >= limit",
        "failures > limit",
    ),
    Mutant(
        "a range of taken tokens is one short",
        consumers,
        "add_taken",
        "taken.insert(place, (first, last, dead))",
        "taken.insert(place, (first, max(first, last - 1), dead))",
    ),
    Mutant(
        "a token that was dead-lettered is told as lost",
        consumers,
        "add_taken",
        "taken.insert(place, (first, last, dead))",
        "taken.insert(place, (first, last, False))",
    ),
    Mutant(
        "the resolved mark takes one token too many",
        consumers,
        "resolve",
        "below = min(below, consumer.next_token)",
        "below = min(below + 1, consumer.next_token)",
    ),
    Mutant(
        "a late ack settles what another has had since",
        checkout,
        "_handed_out",
        "deadletter.forget_late(step, record)",
        "pass",
    ),
    Mutant(
        "a dead letter keeps its failures",
        deadletter,
        "bury",
        "FRESH._replace(dead_letter=letter)",
        "record._replace(dead_letter=letter)",
    ),
    Mutant(
        "a dead letter keeps the history of one attempt only",
        deadletter,
        "bury",
        "record.history[-limits.HISTORY :]",
        "record.history[-1:]",
    ),
    Mutant(
        "the dedup window is not trimmed",
        dedup,
        "forget_due",
        "order[0][0] <= step.now",
        "order[0][0] <= step.now - 1_000_000",
    ),
    Mutant(
        "a dedup id is remembered though its message was not stored",
        publish,
        "_append",
        "dedup.remember(step, queue, columns.dedup_ids, start, stop)",
        "dedup.remember(step, queue, columns.dedup_ids, start, len(columns.dedup_ids))",
    ),
    Mutant(
        "a lowered prefetch is not respected",
        consumers,
        "capacity",
        "consumer.prefetch - consumer.held",
        "consumer.prefetch - consumer.held + (consumer.prefetch == 1)",
    ),
    Mutant(
        "a gap is not noticed",
        publish,
        "_store",
        "command.previous > last:",
        "command.previous > last + 1:",
    ),
    Mutant(
        "a single-active timeout returns only what expired",
        returns,
        "time_out",
        'if queue.spec.ordering == "single_active" and not consumer.durable:',
        "if False:",
    ),
    Mutant(
        "a challenger is fed while the other still holds",
        consumers,
        "elect",
        "if active.held == 0:",
        "if challenged or active.held == 0:",
    ),
    Mutant(
        "a delayed return blocks nothing",
        ordering,
        "delay",
        'skip = queue.spec.on_delay == "skip"',
        "skip = True",
    ),
    Mutant(
        "a key is freed for nobody",
        ordering,
        "take_key",
        "queue.busy_keys[key] = position\n",
        "pass\n",
    ),
    Mutant(
        "the newest is dropped, not the oldest",
        overflow,
        "_oldest_ready",
        "return min(found) if found else None",
        "return max(found) if found else None",
    ),
    Mutant(
        "who released a message gets it at once",
        returns,
        "_return_one",
        "elif cause == Cause.RELEASED and own and consumer.base != Base.CANCELLED:",
        "elif False:",
    ),
    Mutant(
        "a late close of an old connection detaches the new one",
        sessions,
        "detach",
        "session.epochs[command.role] != command.epoch",
        "session.epochs[command.role] < command.epoch",
    ),
    Mutant(
        "a message is handed out past its ttl",
        checkout,
        "take_next",
        "ready.expires_ms(queue, position) <= step.now",
        "ready.expires_ms(queue, position) < step.now",
    ),
    Mutant(
        "a cancelled consumer of a disconnected session keeps its locks",
        sessions,
        "set_disconnected",
        "if consumer.base == Base.CANCELLED:",
        "if False:",
    ),
    Mutant(
        "a drain leaves its credit",
        subscribe,
        "credit",
        "if command.drain:",
        "if False:",
    ),
    Mutant(
        "an evaluation takes locks that have not ended",
        locks,
        "expired_in",
        "floor) <= now_ms:",
        "floor) <= now_ms + 1:",
    ),
    Mutant(
        "a delay is over one millisecond late",
        ticking,
        "queue_due",
        "queue.delays[0][0] <= step.now",
        "queue.delays[0][0] < step.now",
    ),
)


@contextmanager
def switched_on(mutant: Mutant) -> Iterator[None]:
    """The machine with this bug, for a while."""
    original = getattr(mutant.module, mutant.function)
    source = inspect.getsource(original)
    if source.count(mutant.old) != 1:
        raise LookupError(f"{mutant.name}: its place is there {source.count(mutant.old)} times")
    code = compile(source.replace(mutant.old, mutant.new), mutant.module.__file__ or "", "exec")
    exec(code, mutant.module.__dict__)
    try:
        yield
    finally:
        setattr(mutant.module, mutant.function, original)


def hunt(mutant: Mutant) -> tuple[int, int, str] | None:
    """(runs, entries of the last, what was noticed) until it was caught; None if it was not."""
    with switched_on(mutant):
        for seed in range(RUNS_MAX):
            try:
                pair, error = driving.run(seed, STEPS)
            except (LookupError, TypeError, ValueError) as crash:  # apply never raises
                return seed + 1, STEPS, repr(crash)
            if error is not None:
                return seed + 1, len(pair.script), str(error)
    return None


def main() -> None:
    """Hunt them all, and print the table."""
    survivors = 0
    started = time.monotonic()
    print(f"{'mutant':<62}  runs  entries  noticed by")
    for mutant in MUTANTS:
        found = hunt(mutant)
        if found is None:
            survivors += 1
            print(f"{mutant.name:<62}  NOT CAUGHT in {RUNS_MAX} runs")
        else:
            runs, entries, text = found
            words = " ".join(text.split())[:60]
            print(f"{mutant.name:<62}  {runs:>4}  {entries:>7}  {words}")
        sys.stdout.flush()
    print(
        f"{len(MUTANTS) - survivors} of {len(MUTANTS)} caught, {time.monotonic() - started:.0f} s"
    )
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
