"""Bugs in stretches of keys: a story that looks at every message alone must differ from each.

Owns those bugs and their hunts. What keys promise is the model's to hold.
"""

from __future__ import annotations

from fifo.machine import checkout
from fifo.machine.state import ordering
from tests.machine import test_keys_in_turn
from tests.mutants.hunting import Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited

BUGS: dict[str, Switch] = {
    "a key that a stretch has twice goes out twice": edited(
        ordering, "take_keys", "key in busy or key in keys", "key in busy"
    ),
    "a message waits for one behind it": edited(
        ordering, "wait_for_keys", "holder_of(key, end) >= end", "holder_of(key) is None"
    ),
    "what is ready goes out by stretches though another has its key": edited(
        ordering, "reserved", "key and holder_of(key) != end", "False"
    ),
    "a key that no message waits for stays busy": edited(
        ordering, "_pass_on", "del busy[key]", "pass"
    ),
    "a stretch that waits for its keys costs nothing": edited(
        checkout, "_take_in_turn", "step.checkouts -= limits.RECORD_COST * waits", "pass"
    ),
    "one message more is looked at when the step is over": edited(
        checkout, "take_next", "taken is not None or step.checkouts <= 0", "taken is not None"
    ),
    "a stretch of messages that have keys costs as one": edited(
        checkout, "deliver", "(1 if alone else piece)", "1"
    ),
    "a stretch of keys goes on over what has expired": edited(
        checkout, "_unexpired", "if min(expires) <= step.now:", "if False:"
    ),
}

HUNTS = tuple(
    in_process(test_keys_in_turn.test_keys_in_turn_come_to_what_they_come_to_one_by_one, seed)
    for seed in range(test_keys_in_turn.SEEDS)
)

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("machine", breaks, breaks, switch, HUNTS) for breaks, switch in BUGS.items()
)
