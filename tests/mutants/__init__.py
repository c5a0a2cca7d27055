"""Bugs put back on purpose, indexed for the whole project: each has to be caught.

Owns the record of a mutant (`hunting.py`), the ways to put one back (`switch.py`), the index
(`registry.py`) and `python -m tests.mutants` (`make mutants`), which hunts them all and writes
`docs/mutants.md`. Each area keeps its bugs beside its tests, as records of that one form.
Production can reach none.
"""
