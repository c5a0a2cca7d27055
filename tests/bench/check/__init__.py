"""Tests of the history checker on Spark.

Owns that it finds what the plain checkers find. Must not know the rules: docs/history.md has them.
"""
