"""Tests of the documents: what they cite, name and promise exists, and a terminal can show them.

Owns the rules for the pages as a whole. Must not know what a page of one room says: the test of
such a page stands beside its room.
"""
