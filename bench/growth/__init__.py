"""Cost of a message beside more and more of everything: `python -m bench.growth`.

Owns the states that grow (`states`), the probe that works beside them (`probe`), the curves and
their sizes (`curves`), tables and pictures of them. Costs are CPU time of the nodes' processes, so
that a busy machine measures them too. Must not know how the product works.
"""
