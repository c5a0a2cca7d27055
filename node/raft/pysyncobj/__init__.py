"""PySyncObj in a box: the one subclass of it, its pin, its seams and the log in its language.

Owns every name of the library: no other package imports pysyncobj or writes one of its mangled
names. Must not know queues, elections or replication, nor anything of `node.raft` but its errors
and the list of members.
"""
