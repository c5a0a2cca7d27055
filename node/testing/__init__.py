"""A cluster in the process of a test: real nodes, virtual time, no socket and no disk.

Owns what stands around the nodes of such a cluster: clocks, links, disks, and the turns that they
get from the event loop of the test. The simulation of our own tests is made of the same parts. Must
not know clients: `fifo.testing` gives them their side of it.
"""
