"""The `--rewrite` flag: golden scenarios are written anew from what the machine does.

Commit the difference only if you understand every line of it.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite`; it is there when this folder is named on the command line."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden scenarios")
