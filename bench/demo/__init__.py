"""The demo: real flights through a real cluster, whose leader is killed half-way.

Owns `python -m bench.demo`: the data, what each row's fate is to be, the publishers and consumers
on Spark and in plain processes, the records that they keep, the check of these records, and the
report. Must not know the inside of a node: it uses the command `fifo` and the package `fifo`.
"""
