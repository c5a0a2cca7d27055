"""Plausible bugs of what the console knows and says: a test must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

from fifo.machine.read_side import ReadSide
from node.http.console import verdicts
from node.http.console.picture import Picture
from node.http.console.samples import QueueSamples, Samples
from node.http.console.watch import Conditions, ConsumerStates
from tests.machine import test_pulse as pulse
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited
from tests.node.http import test_console as console

_samples = in_process(
    console.test_a_sample_has_depths_and_the_growth_of_counters_since_the_one_before
)
_bounds = in_process(console.test_samples_are_bounded_in_time_and_queues_and_forget_deleted_ones)
_restart = in_process(
    console.test_a_node_may_be_restarted_while_the_others_are_a_majority_that_keeps_up
)
_refusal = in_process(
    console.test_a_refusal_names_the_node_the_reason_and_the_longest_time_that_is_known
)
_states = in_process(console.test_a_consumer_has_its_last_states_with_their_beginnings)

BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a node is safe to restart though the others are no majority": (
        edited(verdicts, "restart", "if others < needed:", "if others < 1:"),
        _restart,
    ),
    "a node that lags is counted on": (
        edited(verdicts, "_not_counted_on", 'peer["lag"] > LAG_ENTRIES_MAX', "False"),
        _restart,
    ),
    "a leader is safe to restart before it has handed over": (
        edited(verdicts, "restart", 'if leader["name"] == name:', "if False:"),
        _restart,
    ),
    "an alarm that refuses nothing raises the banner": (
        edited(verdicts, "refusal", 'if alarm["refuses"]:', "if True:"),
        _refusal,
    ),
    "the banner is as old as the leader's look, and not as the oldest one": (
        edited(verdicts, "_longest_ms", "return max(", "return min("),
        _refusal,
    ),
    "of two that say they lead the older term is believed": (
        edited(verdicts, "leader_in", "return max(", "return min("),
        in_process(console.test_of_two_that_say_they_lead_the_one_of_the_later_term_is_believed),
    ),
    "what was counted before the first sample is a peak in the chart": (
        edited(QueueSamples, "add", "since = counters if", "since = (0,) * len(counters) if"),
        _samples,
    ),
    "a rate is of the newest sample alone, and jumps": (
        edited(QueueSamples, "rates", "self.before or self.latest", "self.latest"),
        _samples,
    ),
    "samples are kept without end": (
        edited(QueueSamples, "add", "len(column) > limits.SAMPLES_MAX", "False"),
        _bounds,
    ),
    "the samples of a deleted queue stay": (
        edited(Samples, "add", "self._queues.keys() - seen.keys() - {self.ALL}", "()"),
        _bounds,
    ),
    "a condition that ended goes on where it is seen again": (
        edited(
            Conditions,
            "look",
            "self._since_ms = {one",
            "self._since_ms |= {one",
        ),
        in_process(console.test_a_condition_has_the_time_at_which_it_was_first_seen_until_it_ends),
    ),
    "a consumer's state begins anew with each look": (
        edited(ConsumerStates, "look", "elif changes[-1][1] != state:", "else:"),
        _states,
    ),
    "the states of a consumer are kept without end": (
        edited(ConsumerStates, "look", "del changes[: -limits.CONSUMER_CHANGES_MAX]", "pass"),
        _states,
    ),
    "a user is shown the queues of others": (
        edited(Picture, "_changed", "rights.sees(row.name)", "True"),
        in_process(console.test_where_there_are_users_each_sees_the_part_that_is_its_own),
    ),
    "a queue that is paused has the pulse that it had": (
        edited(ReadSide, "queue_pulse", "queue.paused,", ""),
        in_process(pulse.test_a_pause_changes_the_pulse),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("console", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
