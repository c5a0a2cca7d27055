"""The same load against this project, RabbitMQ's quorum queues and NATS JetStream, side by side.

Owns `python -m bench.peers`: starting each system as three nodes on the loopback address, one load
for all, rounds in turn, and the ratios. Must not know the inside of any of them. The peers are
driven by Python clients (pika, nats-py): the figures compare what a Python program gets, not what
these servers can do with a client in C.
"""
