"""Tests of the node: its configuration here, its rooms in folders of their names.

Owns what belongs to no room of the node alone. Must not know a room's inside.
"""
