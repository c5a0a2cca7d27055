"""The HTTP API under `/api/v1`: reads and verbs of the command line, for any language with HTTP.

Owns one table of routes (`table.py`), which is served and which `openapi.py` describes. A request
is carried out by a client of the cluster with the caller's own credentials (`callers.py`), so
users, permissions, quotas and error codes are those of the client port, and any node passes it on
to the leader. Must not know the broker: what a client cannot do, the API cannot.
"""
