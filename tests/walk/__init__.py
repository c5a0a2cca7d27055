"""The walk: what a publish, an ack, a renewal, a time-out and a change of leader run through.

Owns `docs/walk.md`, which `make walk` renders from one real run in virtual time: a client and three
nodes, with every call from one package of `fifo` and `node` into another noted. Must not know what
the calls do.
"""
