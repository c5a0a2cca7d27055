"""The queue machine: pure, deterministic, replicated (see `machine.py` for its one function)."""

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
