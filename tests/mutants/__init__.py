"""Bugs put back on purpose, in one registry for the whole project: each has to be caught.

Owns the registry (`registry.py`: by area, with the tests that may catch them), the switch
(`switch.py`), and `python -m tests.mutants` (`make mutants`), which hunts them all and writes
`docs/mutants.md`. The faulty behaviours themselves stand beside the tests of their area. Production
can reach none. Must not know how a bug is caught.
"""
