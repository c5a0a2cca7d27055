"""Publishing: batches, windows, numbering, confirms.

Owns a publish from the call until its confirm. Must not know consumers.
"""
