"""The floor of this machine: what a message would take that no product handled.

Owns processes that do nothing but pass 1 KB on, sync it and answer (`roles`), and the loads and the
table beside the rows of `bench.rates` that they bound (`__main__`). Must not know the product, but
for the event loop that it runs on.
"""
