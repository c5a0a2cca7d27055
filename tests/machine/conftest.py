"""The `--rewrite` flag: rewrite the golden scenarios from the machine's present output.

Commit the difference only if you understand every line of it.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite`; available when this folder is named on the command line."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden scenarios")
