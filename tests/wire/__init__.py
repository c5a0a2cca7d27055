"""Tests of the protocol: frames in any cut, hostile bytes, and the page that describes it.

Owns docs/protocol.md as a promise, kept by a stranger's client too. Must not know either side.
"""
