"""The queue machine: pure, deterministic, replicated (see `machine.py` for its one function)."""

from fifo.machine import commands, effects, replies

__all__ = ["commands", "effects", "replies"]
