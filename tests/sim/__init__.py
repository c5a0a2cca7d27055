"""The whole system in one thread under virtual time: real nodes, real clients, drawn faults.

Owns the simulator (docs/simulation.md). Must not know rules of its own: histories are judged by
those of the fault suite.
"""
