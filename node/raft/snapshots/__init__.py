"""Snapshots in Raft: taking, sending, receiving and installing them between turns.

Owns when each of these happens. Must not know the files of the journal or what a state means.
"""
