"""The checker of recorded histories of any size, on Spark.

Owns `python -m bench.check`: reading a history (docs/history.md), the rules of that page as
queries, the verdict with examples, the figures over time, and the page that shows them. Must not
know who recorded a history. The rules are those of the plain checkers, which judge small histories
in memory; tests hold both to the same findings.
"""
