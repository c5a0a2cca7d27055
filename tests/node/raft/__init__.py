"""Tests of node/raft: scenarios, schedules of faults, hazards of the library, and the pin.

Owns the guarantees of docs/raft.md. Must not know queues.
"""
