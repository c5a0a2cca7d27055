"""A state that goes on in another cluster: what a restored backup is before its first leader.

Owns what may not outlive the cluster that the state is from. Clients of that may hold what it gave
them after the state was taken: a number that was given twice would settle another message, or name
another queue. So sessions end, and numbers go on far behind those of then.
"""

from typing import Any, Final

from fifo.machine.commands import EndSession, Tick
from fifo.machine.machine import Machine, Meta
from fifo.machine.replies import Ticked
from fifo.machine.types import EndCause

NUMBERS_LEFT_OUT: Final = 1 << 32
"""Sessions, consumers, producers and generations that the lost cluster may have numbered since: a
thousand a second for seven weeks. Two million restores fit below the largest number."""

QUEUES_LEFT_OUT: Final = 1 << 20
"""The same of queues, whose numbers have 32 bits in the columns of messages: 4,000 restores fit."""


def as_new_cluster(machine: Machine, index: int, wall_ms: int) -> int:
    """End all sessions, as their clients would by closing them, and leave numbers out; by an entry
    of this index. Named producers, dedup windows and durable consumers stay. The term of its last
    leader, which the next one's has to exceed."""
    state = machine.state
    meta = Meta(index, state.cluster_time_ms, wall_ms, memoryview(b""))
    for number in list(state.sessions):
        machine.apply(meta, EndSession(number, int(EndCause.CLOSED)))
    while state.chores:
        reply, _ = machine.apply(meta, Tick())
        assert isinstance(reply, Ticked), "a tick is never refused"
    state.next_session += NUMBERS_LEFT_OUT
    state.next_consumer += NUMBERS_LEFT_OUT
    state.next_producer += NUMBERS_LEFT_OUT
    state.next_queue += QUEUES_LEFT_OUT
    for queue in state.queues.values():
        for number in queue.durables.values():
            consumer: Any = state.consumers[number]
            state.touch(consumer)
            consumer.durable += NUMBERS_LEFT_OUT
    return state.term
