"""The rules of `docs/protocol.md`, asked of a node from outside."""
