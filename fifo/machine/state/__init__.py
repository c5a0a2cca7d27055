"""The replicated state of the machine: its records, and the structures that keep them in order.

Owns what is stored and how it is indexed. Must not know commands, verbs or snapshots.
"""
