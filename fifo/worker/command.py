"""The command `fifo worker module:app`.

Owns its options and exit codes (0; 1 failed; 2 usage), and the set-up of logging. It needs the
client's distribution alone, so it stands here and not in the server's command line.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from fifo.client import FifoError
from fifo.worker import limits
from fifo.worker.loading import load
from fifo.worker.serving import Settings, serve

FAILED = 1


def main(arguments: Sequence[str], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> int:
    """Run the command; return its exit code."""
    chosen = _parser().parse_args(arguments)
    logging.basicConfig(
        level=chosen.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    settings = Settings(
        target=chosen.target,
        url=chosen.url,
        concurrency=chosen.concurrency,
        prefetch=chosen.prefetch,
        grace_s=chosen.grace,
    )
    try:
        app = load(settings.target)
        app.check()
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve(app, settings))
    except FifoError as error:
        if os.environ.get("FIFO_DEBUG"):
            traceback.print_exception(error)
        print(f"fifo worker: {error}", file=sys.stderr)
        return FAILED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fifo worker",
        description="Run the tasks of an app until SIGTERM.",
        epilog="Example: fifo worker orders:app -c 16",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="MODULE:APP", help="the app, as in orders:app")
    parser.add_argument("--url", help="cluster; default: that of the app, or $FIFO_URL")
    parser.add_argument(
        "-c", "--concurrency", type=int, default=limits.CONCURRENCY, metavar="N",
        help="messages at work at once in a process (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--prefetch", type=int, metavar="N",
        help="messages held at once for each queue; default: as many as are at work",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=float, default=limits.GRACE_SECONDS, metavar="SECONDS",
        help="time to end what is at work after SIGTERM (%(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info",
        help="least severity of what is logged (%(default)s)",
    )  # fmt: skip
    return parser
