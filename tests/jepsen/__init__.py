"""The fault suite: real processes, real faults, and what clients saw of them.

Owns workloads, faults, histories and verdicts (docs/faults.md). Must not know a node's inside, but
through its ports and its disk.
"""
