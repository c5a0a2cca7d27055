"""Consuming: deliveries, the ledger of locks, messages and their settlement.

Owns a message from its delivery until its settlement is answered. Must not know publishing.
"""
