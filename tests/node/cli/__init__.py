"""Tests of the `fifo` command, most of them with a real cluster of processes.

Owns what is printed, and what is left behind. Must not know a node's inside.
"""
