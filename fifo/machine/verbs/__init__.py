"""What the machine does with each command, one module per family of commands.

Owns the rules of docs/semantics.md, verb by verb. Must not know the wire, the log or a snapshot.
"""
