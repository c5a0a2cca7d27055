"""Tests of node/journal: the log, its files, its recovery."""
