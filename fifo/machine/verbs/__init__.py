"""The verbs of the machine: the handling of each command, one module per family.

Owns the rules of docs/semantics.md, verb by verb. Must not know the wire, the log or a snapshot.
"""
