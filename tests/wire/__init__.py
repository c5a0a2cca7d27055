"""Tests of the protocol: frames in any cut, hostile bytes, and the page that describes it.

Owns the proof of docs/protocol.md, with a client written from that page alone. Must not know the
client or the node.
"""
