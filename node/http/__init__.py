"""The HTTP port of a node: health, metrics and state as JSON.

Owns the pages and their formats. Must not know how to change anything: it only reads.
"""
