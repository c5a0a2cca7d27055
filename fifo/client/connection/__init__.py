"""Connections of a client: finding the leader, the session that outlives each connection.

Owns dialing, resuming, heartbeats and the correlation of requests. Must not know what
a message is for.
"""
