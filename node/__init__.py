"""A node of the cluster: journal, peers, Raft, broker, HTTP port and command line.

Owns what all of its rooms read: configuration, users, the collector of garbage. Must not know one
room from another; `node.server` puts them together.
"""
