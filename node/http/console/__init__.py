"""The console: the page that every node serves at `/`, and what it asks its node for.

Owns the files of the page, the samples behind its charts, and the answers of its feed. Must not
know how a queue or Raft works: it shows their views, and what it changes goes by the HTTP API.
"""
