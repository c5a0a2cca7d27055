"""Tests of the demo, the load job and the measurements.

Owns that they report what happened. Must not know rates: none is asserted.
"""
