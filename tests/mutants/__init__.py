"""Bugs put back on purpose, in one registry for the whole project: each has to be caught.

`registry.py` lists them by area with those who may catch them, `switch.py` is how one is switched
on, and `python -m tests.mutants` (`make mutants`) hunts them all and writes `docs/mutants.md`. The
faulty behaviours themselves stand beside the tests of their area. Production can reach none.
"""
