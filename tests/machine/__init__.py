"""Tests of the machine: golden stories, rule by rule, fuzzed logs, bounds, snapshots.

Owns the executable side of docs/semantics.md. Must not know the wire, the log or a clock.
"""
