"""The command `fifo`: queues, messages, clusters and nodes from a terminal.

Owns options, output and exit codes. Must not know the machine or the journal: it is a client, and
starts a node through `node.server`.
"""
