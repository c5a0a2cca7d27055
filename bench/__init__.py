"""Measurements, load jobs, the demo and the checker of histories.

Owns what runs against a cluster from outside and what it prints. Must not know the inside of a node
beyond what FLOORS in `tests/test_house.py` grants; nothing of the product imports it.
"""
