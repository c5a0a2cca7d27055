"""Tests of the client: against a scripted node, and on real clusters (`*_cluster.py`).

Owns the guarantees of docs/client.md. Must not know a node's inside.
"""
