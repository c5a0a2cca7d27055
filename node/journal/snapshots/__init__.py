"""Snapshots, the entries that outlive the log, and compaction.

Owns which snapshots there are and which files they keep. Must not know what a state means.
"""
