"""Raft alone, without a queue: this project's node beside the library as it ships.

Owns that comparison; must not know the broker or the machine. `python -m bench.raft` starts three
processes per workload and prints ratios; `members.py` says what runs in each, `ours.py` and
`stock.py` are the two kinds.
"""
