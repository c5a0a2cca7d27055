"""Tests of node/journal: the log, its files, its recovery.

Owns what survives a crash and what is found after damage. Must not know Raft.
"""
