"""Hostile and greedy clients beside an honest one, on real nodes: none takes a node down.

Owns the kinds of attack (`bursts`, `garbage`, `hoards`, `ports`; all of them in `kinds`), the
process that attacks, three nodes, the honest client, and the facts that must hold. `make
neighbours` runs all kinds and writes `docs/neighbours.md`. Must not know how a node defends itself.
"""
