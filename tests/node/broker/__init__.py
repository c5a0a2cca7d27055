"""Tests of the broker: its parts alone, and whole nodes spoken to by raw clients.

Owns what a node does with its clients. Must not know the client library: frames are the interface.
"""
