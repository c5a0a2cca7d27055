"""`python -m tests.node.raft.traced CORE ...`: `fifo ...` with a bug put back, or with CORE `-`.

Owns nothing but the bug's name. `test_syscalls.py` runs nodes so and looks at what they do.
"""

from __future__ import annotations

import sys

from node.cli.main import run
from node.raft.node import RaftNode
from tests.support.raft_mutants import CORES


def main() -> int:
    """The command's exit code."""
    core, *arguments = sys.argv[1:]
    if core != "-":
        RaftNode.core_class = CORES[core]
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
