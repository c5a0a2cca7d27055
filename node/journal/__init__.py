"""The durable log of one node: segments, recovery, snapshots, and the disk below them.

Owns every file of a node's data folder. Must not know Raft's rules, peers, or what an entry means.
"""
