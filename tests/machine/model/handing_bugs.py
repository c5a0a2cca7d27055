"""Bugs of the delivery loop: what a step hands out, to whom, and what it says of the rest.

Owns those bugs, each as one place in the source of one function, and the scenarios that random runs
cannot replace. Must not know the hunts.
"""

from __future__ import annotations

from fifo.machine import checkout
from fifo.machine.read_side import ReadSide
from tests.machine import test_cut_short, test_ordering, test_shares
from tests.mutants.switch import Switch, edited

BUGS: dict[str, Switch] = {
    "a step that was cut short says that nothing is ready": edited(
        checkout,
        "is_cut_short",
        "step.checkouts > 0",
        "True",
    ),
    "each consumer gets a part of what is left, until nothing is": edited(
        checkout, "checkout", "begun = queue.turns if", "begun = NEVER_MS if"
    ),
    "a cluster of version 1 has even shares": edited(
        checkout, "checkout", "state.version >= EVEN_SHARES", "True"
    ),
    "keys are out though messages with free keys are ready": edited(
        ReadSide, "keys_are_out", "waiting == queue.ready", "True"
    ),
}

DIRECTED = {
    "a step that was cut short says that nothing is ready": (
        test_cut_short.test_a_reader_of_only_expired_messages_learns_that_there_may_be_more,
        test_cut_short.test_a_reader_of_only_waiting_messages_learns_that_there_may_be_more,
    ),
    "each consumer gets a part of what is left, until nothing is": (
        test_shares.test_what_becomes_ready_at_once_is_one_even_delivery_for_each_consumer,
    ),
    "a cluster of version 1 has even shares": (
        test_shares.test_a_cluster_of_version_1_divides_what_is_left_until_nothing_is,
    ),
    "keys are out though messages with free keys are ready": (
        test_ordering.test_keys_are_out_where_all_that_waits_has_a_busy_key_and_places_are_free,
    ),
}
"""Scenarios for what random runs hardly meet, or what the model leaves open."""
