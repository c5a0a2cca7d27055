"""Tools that set a checkout up and check its commits.

Owns `make setup`. Must not know the project's packages: it runs before anything is installed, on
the standard library alone.
"""
