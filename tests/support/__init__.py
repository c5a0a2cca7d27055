"""Parts that tests of several rooms share: worlds, clusters, disks, clients, pages.

Owns the twins of everything that is taken from outside. Must not know a test.
"""
