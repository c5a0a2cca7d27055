"""Tests of the data source: its parts alone, on real clusters, and in Spark jobs.

Owns the promises of docs/spark.md. Must not know the protocol.
"""
