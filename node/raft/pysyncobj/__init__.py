"""PySyncObj in a box: its pin, its module-level seams, and the one subclass of it.

Owns every name of the library. Must not know queues; no other package imports pysyncobj.
"""
