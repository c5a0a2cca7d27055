"""Raft by itself, without a queue: this project's node beside the library as it ships.

`python -m bench.raft` starts three processes per workload and prints ratios; `members.py` says what
runs in each, `ours.py` and `stock.py` are the two kinds.
"""
