"""The rates of this machine, of one checkout or of two in turn: `python -m bench.rates`.

Owns the rows of the table and their aims (`rows`), the processes that load a cluster (`driver`),
the checkouts that are measured (`checkout`), and their turns (`rounds`). Must not know how the
product works: a driver uses the public client alone, so that it runs on older checkouts too.
"""
