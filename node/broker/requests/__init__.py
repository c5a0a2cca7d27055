"""Requests of clients: one handler per message, each checked before the log.

Owns the way from a request to a command and from its reply to the answer. Must not know sockets.
"""
