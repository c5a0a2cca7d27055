"""The whole system in one thread under virtual time: real nodes, real clients, drawn faults."""
