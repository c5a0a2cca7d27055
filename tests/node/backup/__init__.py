"""Tests of backups: the file, what is taken while a cluster serves, and what is made of it.

Owns what a copy has to be. Must not know how a node keeps a view.
"""
