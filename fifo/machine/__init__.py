"""The queue machine: pure, deterministic, replicated (see `machine.py` for its one function).

Owns the state of all queues and every change of it. Must not know clients, the network, the disk or
a clock: the same log gives the same state on every replica.
"""

from fifo.machine import commands, effects, invariants, queries, replies
from fifo.machine.machine import Machine, Meta, Outcome

__all__ = [
    "Machine",
    "Meta",
    "Outcome",
    "commands",
    "effects",
    "invariants",
    "queries",
    "replies",
]
