"""The tests, each room's in a folder of its name; `support` is what several of them share.

Owns proofs. Must not know how to be quick at the price of a sleep: time is virtual, or a condition
with a deadline.
"""
