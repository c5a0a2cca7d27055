"""The slow, obvious model of the queue, and the Hypothesis test that runs it beside the machine.

Owns the model, written by another hand than the machine and from semantics.md alone: unit tests,
golden stories and the rest of `tests/machine` stand one folder up. Must not know the
algorithms of the machine.
"""
