"""The wire between members: frames, handshake, TLS, connections.

Owns bytes and proofs of identity. Must not know terms, logs or queues.
"""
