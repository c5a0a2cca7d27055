"""The vocabulary of fifo: queue options, backoffs, durations, verbs, statuses, codes, bounds.

Owns what the protocol, the machine, the client and the command line must mean alike: values, names,
text forms and ranges, each in one place. Must not know any of them, nor hold state or behaviour;
standard library only, and as deterministic as the machine, which reads it.
"""
