"""Backups: one consistent copy of a cluster in one file, and a cluster made from it.

Owns the file, what is read out of it offline, and the journals that a restore makes. Must not know
how a copy is taken from a running node: a command reads it there, and writes it here.
"""
