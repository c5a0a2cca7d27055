"""The checkers' own score: good histories, changed in every way that a rule names.

Owns the mutations, the recorded histories that they are made of, and `python -m tests.jepsen.score`
(`make score`), which has both checkers judge all of them and writes docs/checkers.md. What each
mutation is was written from docs/history.md; it shares no code with a checker.
"""
