"""Client connections: accepting, handshake, sessions, bounded input and output.

Owns bytes and bindings of sessions. Must not know what a request does.
"""
