"""The command `fifo worker module:app`.

Owns its options and exit codes (0; 1 failed; 2 usage), and the set-up of logging. It needs the
client's distribution alone, so it stands here and not in the server's command line.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fifo.client import FifoError
from fifo.client.durations import seconds
from fifo.worker import limits, logs
from fifo.worker.health import probes
from fifo.worker.loading import load
from fifo.worker.serving import Settings, serve
from fifo.worker.supervisor import Supervisor

FAILED = 1
USAGE = 2


def main(arguments: Sequence[str], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> int:
    """Run the command; return its exit code."""
    chosen = _parser().parse_args(arguments)
    logs.set_up(chosen.log_level, chosen.log_format)
    is_supervised = chosen.status_descriptor is not None
    settings = Settings(
        target=chosen.target,
        url=chosen.url,
        concurrency=chosen.concurrency,
        prefetch=chosen.prefetch,
        grace_s=chosen.grace,
        children=chosen.children,
        log_level=chosen.log_level,
        log_format=chosen.log_format,
        health_port=None if is_supervised else chosen.health_port,
        health_file=None if is_supervised else chosen.health_file,
        status_descriptor=chosen.status_descriptor,
    )
    alone = chosen.processes == 1 and not chosen.reload
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            if not alone and not is_supervised:
                return runner.run(_supervise(arguments, chosen))
            app = load(settings.target)
            app.check()
            runner.run(serve(app, settings))
    except FifoError as error:
        if os.environ.get("FIFO_DEBUG"):
            traceback.print_exception(error)
        print(f"fifo worker: {error}", file=sys.stderr)
        return FAILED
    return 0


async def _supervise(arguments: Sequence[str], chosen: argparse.Namespace) -> int:
    """Run processes; the probes are of all of them."""
    folder = Path.cwd() if chosen.reload else None
    supervisor = Supervisor(arguments, chosen.processes, folder)
    async with probes(supervisor.reports, chosen.health_port, chosen.health_file):
        return await supervisor.run()


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, as the other commands do."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit."""
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fifo worker",
        description="Run the tasks of an app until SIGTERM.",
        epilog="Example: fifo worker orders:app -c 16",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="MODULE:APP", help="the app, as in orders:app")
    parser.add_argument("--url", help="cluster; default: that of the app, or $FIFO_URL")
    parser.add_argument(
        "-c", "--concurrency", type=_count, default=limits.CONCURRENCY, metavar="N",
        help="messages at work at once in a process (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--prefetch", type=_count, metavar="N",
        help="messages held at once for each queue; default: as many as are at work",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=_seconds, default=limits.GRACE_SECONDS, metavar="SECONDS",
        help="time to end what is at work after SIGTERM (%(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--children", type=_processes, default=os.cpu_count() or 1, metavar="N",
        help="processes for handlers that may block, in a worker process (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=_processes, default=1, metavar="N",
        help="worker processes, each with its own concurrency (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--reload", action="store_true",
        help="start again when a Python file below this folder changes: for development",
    )  # fmt: skip
    parser.add_argument(
        "--health-port", type=_port, metavar="PORT", help="answer probes: GET /live and /ready"
    )
    parser.add_argument(
        "--health-file", type=Path, metavar="FILE",
        help="write 'live' or 'ready' to this file every second while that is so",
    )  # fmt: skip
    parser.add_argument("--status-descriptor", type=int, help=argparse.SUPPRESS)
    parser.add_argument(
        "--log-level", choices=logs.LEVELS, default="info",
        help="least severity of what is logged (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--log-format", choices=logs.FORMATS, default="text",
        help="lines for people, or JSON (%(default)s)",
    )  # fmt: skip
    return parser


def options() -> list[str]:
    """Names of the options that users see."""
    actions = _parser()._actions
    return [
        name
        for action in actions
        if action.help != argparse.SUPPRESS
        for name in action.option_strings
    ]


def _count(text: str, most: int = limits.CONCURRENCY_MAX) -> int:
    """Parse a number of messages or processes."""
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1 to {most}")
    return int(text)


def _port(text: str) -> int:
    return _count(text, 65_535)


def _seconds(text: str) -> float:
    try:
        return seconds(float(text), "grace")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 on") from error


def _processes(text: str) -> int:
    return _count(text, limits.PROCESSES_MAX)
