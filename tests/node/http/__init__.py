"""Tests of the HTTP port: health, metrics, state, and who may read them.

Owns docs/metrics.md as a promise. Must not know how a figure comes about.
"""
