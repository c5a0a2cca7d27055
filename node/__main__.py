"""``python -m node`` is the ``fifo`` command."""

from node.cli.main import main

main()
