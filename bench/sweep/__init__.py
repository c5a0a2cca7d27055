"""The longest apply of each kind of command at its limits: `python -m bench.sweep`.

Owns the cases (what a machine is filled with, and the one command that is then given) and how they
are timed. Must not know a node: a leader's own work for a command stands in the node's metrics.
"""
