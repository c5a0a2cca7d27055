"""System calls on the data folder, and blocking I/O off the event loop.

Owns the disk's protocol, worker threads and read-ahead. Must not know records or terms.
"""
