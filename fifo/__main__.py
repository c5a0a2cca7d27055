"""The ``fifo`` command: hands over to the server's distribution, or names what to install.

Owns the entry point, which belongs to the client so that it exists wherever the client is. The one
module of `fifo` that may import `node`, and only when the command runs. `fifo worker` needs the
client alone.
"""

from __future__ import annotations

import sys

MISSING = "fifo: the command line comes with the server: pip install 'fifo-quorum[server]'"


def main() -> None:
    """Run the command line; without the server's package, print one line and exit with 1."""
    if sys.argv[1:2] == ["worker"]:
        from fifo.loop import new_loop
        from fifo.worker.command import main as worker

        sys.exit(worker(sys.argv[2:], new_loop))
    try:
        from node.cli.main import main as command_line
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "node":
            raise
        sys.exit(MISSING)
    command_line()


if __name__ == "__main__":
    main()
