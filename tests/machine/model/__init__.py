"""The slow, obvious model of the queue, and the Hypothesis test that runs it beside the machine.

Written by another hand than the machine, from semantics.md alone: unit tests, golden scenarios and
the rest of `tests/machine` stand one folder up. Must not know how the machine does it.
"""
