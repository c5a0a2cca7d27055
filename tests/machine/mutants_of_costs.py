"""Bugs in what counts for more than one message in a step: a test of that cost must notice each.

Owns those bugs and their hunts. Must not know the model: its steps are too small for any bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fifo.machine import checkout, limits, returns
from fifo.machine.snapshot import snapshot_stream
from fifo.machine.state import locks
from fifo.machine.types import EndCause
from fifo.machine.verbs import publish, queues, sessions, subscribe, tick
from tests.machine import test_costs, test_leaving
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import in_process
from tests.mutants.switch import Switch, edited, replaced


@contextmanager
def one_by_one() -> Iterator[None]:
    """Each consumer that leaves takes a whole step."""
    with (
        replaced(limits, "GONE_COST", limits.STEP_MESSAGES)(),
        replaced(limits, "CONSUMER_COST", limits.STEP_MESSAGES)(),
    ):
        yield


def _test(work: Callable[..., object], *values: object) -> Hunt:
    return in_process(work, *values, fixtures={"one_by_one": one_by_one})


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a consumer whose locks end costs nothing beside them": (
        edited(tick, "_evaluate", "            left -= limits.CONSUMER_COST", "            pass"),
        _test(test_costs.test_consumers_that_lose_a_lock_each_count_for_more_than_their_locks),
    ),
    "a consumer whose grace ends costs nothing beside its locks": (
        edited(sessions, "grace_over", "step.budget -= limits.CONSUMER_COST", "pass"),
        _test(test_costs.test_consumers_whose_grace_ends_count_for_more_than_their_locks),
    ),
    "a message whose ttl ends while it is locked costs nothing": (
        edited(tick, "_expire_block", "step.budget -= 1", "step.budget -= 0"),
        _test(test_costs.test_a_ttl_that_ends_on_locked_messages_is_looked_at_in_ticks),
    ),
    "a block in which a ttl ends costs nothing": (
        edited(tick, "_expire_block", "step.budget -= limits.BLOCK_COST", "pass"),
        _test(test_costs.test_a_ttl_that_ends_on_locked_messages_is_looked_at_in_ticks),
    ),
    "a named producer is forgotten in all of its queues at once": (
        edited(sessions, "forget_producer", "len(producer.queues) > limits.STEP_OBJECTS", "False"),
        _test(test_costs.test_a_named_producer_of_very_many_queues_is_forgotten_in_ticks),
    ),
    "a producer that is being forgotten stays in the last queues": (
        edited(sessions, "go_on_forgetting", "if len(found) > most:", "if False:"),
        _test(test_costs.test_the_producer_of_a_session_that_ends_is_forgotten_in_ticks),
    ),
    "a lock of one message costs no more than one of many": (
        edited(locks, "expired_in", "left -= end - held.first + 1", "left -= end - held.first"),
        _test(test_costs.test_locks_of_one_message_each_count_as_a_message_more),
    ),
    "a lock whose end makes a dead letter costs as any other": (
        edited(returns, "cost_of", "if queue.spec.dead_letter is None", "if True"),
        _test(test_costs.test_a_lock_whose_end_may_make_a_dead_letter_counts_for_more),
    ),
    "what came back is handed out at the cost of what is new": (
        edited(checkout, "deliver", "limits.HAND_OUT_COST - 1", "0"),
        _test(
            test_costs.test_messages_that_came_back_count_for_more_where_they_are_handed_out_again
        ),
    ),
    "a delivery costs nothing beside its messages": (
        edited(checkout, "deliver", "step.checkouts -= limits.DELIVERY_COST", "pass"),
        _test(test_costs.test_each_delivery_counts_for_more_than_its_messages),
    ),
    "a producer looks at all of its queues for each new one": (
        edited(publish, "_begin", "if not known & (known - 1):", "if True:"),
        _test(test_costs.test_a_producer_looks_at_the_queues_that_it_knows_at_each_doubling_alone),
    ),
    "a queue is deleted with all of its consumers at once": (
        edited(queues, "go_on_removing", "islice(queue.consumers, most)", "queue.consumers"),
        _test(test_leaving.test_a_deleted_queue_lets_its_consumers_go_in_ticks),
    ),
    "a queue that is being deleted has its name again after a restore": (
        edited(snapshot_stream, "_index", "if not queue.deleted:", "if True:"),
        _test(test_leaving.test_a_deleted_queue_lets_its_consumers_go_in_ticks),
    ),
    "a lock on a queue that is being deleted ends like any other": (
        edited(tick, "_evaluate", "state.consumer(number)", "state.consumers.get(number)"),
        _test(test_leaving.test_the_locks_of_a_deleted_queue_are_not_missed),
    ),
    "a resume lists consumers of a queue that is being deleted": (
        edited(sessions, "attach", "and not step.state.queues[held.queue].deleted", ""),
        _test(test_leaving.test_a_resume_knows_nothing_of_a_queue_that_is_deleted, "none"),
    ),
    "a resume sends messages of a queue that is being deleted": (
        edited(
            checkout, "send_again", "if step.state.queues[consumer.queue].deleted:", "if False:"
        ),
        _test(test_leaving.test_a_resume_knows_nothing_of_a_queue_that_is_deleted, "none"),
    ),
    "a session's consumers leave it at no cost": (
        edited(sessions, "go_on_leaving", "step.budget -= limits.CONSUMER_COST", "pass"),
        _test(test_leaving.test_the_consumers_of_an_ended_session_go_in_ticks, EndCause.CLOSED),
    ),
    "a consumer that is being removed is subscribed again": (
        edited(subscribe, "_staying", "return None if leaves else number", "return number"),
        _test(
            test_leaving.test_a_session_that_an_operator_ended_subscribes_anew_beside_what_leaves
        ),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("machine", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
