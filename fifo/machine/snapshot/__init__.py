"""The state of the machine as bytes: written from a frozen view, read back, checked.

Owns the format and its versions. Must not know the log or files.
"""
