"""Requests of clients: one handler class per subject, and the table that dispatches to them.

Owns the way from a message to a command and from its reply to the answer. Every handler checks its
message before the log; none changes state itself. Must not know sockets or how entries travel.
"""
