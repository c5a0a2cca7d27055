"""Load jobs on Spark: `python -m bench.load`, or the same by spark-submit.

Owns workloads (TOML files), the partitions that carry them out as producers and consumers, the
events that they write down, the figures that come back, and sweeps over one setting. Must not
know the inside of a node.
"""
