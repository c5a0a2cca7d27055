"""Upgrades node by node, with real builds of the releases that are kept in `tests/releases`."""
