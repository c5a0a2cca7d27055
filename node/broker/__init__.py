"""The broker: clients' requests into log entries, the machine's effects back to clients.

Owns what only a leader does: sessions, deliveries, the lock clock, renewals, backpressure. Must not
know how the log is replicated or kept on the disk.
"""
