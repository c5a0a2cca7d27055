"""Entry point of the ``fifo`` command line: its groups and commands, and the end of each.

Owns the exit codes (0; 1 failed; 2 usage) and the rule that a failure is one line on stderr. A
traceback is printed only where FIFO_DEBUG is set.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer
from typer.main import get_command

import fifo
from fifo.loop import new_loop
from node.cli import (
    admin,
    audit,
    backup,
    cluster,
    config,
    entry,
    look,
    member,
    message,
    output,
    people,
    queue,
    upgrade,
    user,
)
from node.cli.apply import apply, export
from node.cli.bench import bench
from node.cli.consume import consume
from node.cli.doctor import doctor
from node.cli.errors import FAILED, INTERRUPTED, USAGE, CliError, one_line
from node.cli.publish import publish
from node.cli.restore import restore
from node.cli.serve import serve
from node.cli.status import status
from node.cli.verify import verify
from node.table import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="fifo",
    no_args_is_help=True,
    epilog="Example: fifo cluster start",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    # Plain help: the framed one cuts long option names, and takes [[node]] for markup.
    rich_markup_mode=None,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(queue.app, name="queue")
app.add_typer(user.app, name="user")
app.add_typer(config.app, name="config")
app.add_typer(people.app, name="session")
app.add_typer(message.app, name="message")
app.add_typer(backup.app, name="backup", epilog="Example: fifo backup --to orders.backup")
app.add_typer(upgrade.app, name="upgrade")
app.add_typer(member.app, name="member")
app.add_typer(entry.app, name="entry", epilog="Example: fifo entry show --config cluster.toml")
for command, example in (
    (serve, "fifo serve --config cluster.toml --node n1"),
    (status, "fifo status --json"),
    (publish, "fifo publish orders --body hello --key c7 --header source=web"),
    (consume, "fifo consume orders --count 10 --json"),
    (look.peek, "fifo peek orders --count 5"),
    (look.locks, "fifo locks orders"),
    (look.delayed, "fifo delayed orders"),
    (look.dead_letters, "fifo dead-letters orders.dlq"),
    (look.consumers, "fifo consumers orders"),
    (look.producers, "fifo producers orders"),
    (people.users, "fifo users --json"),
    (people.sessions, "fifo sessions --user orders-service"),
    (audit.audit, "fifo audit --since 1h --user ann"),
    (bench, "fifo bench --publishers 1 --consumers 1 --seconds 20"),
    (doctor, "fifo doctor --json"),
    (restore, "fifo restore orders.backup --config cluster.toml"),
    (verify, "fifo verify --json"),
    (apply, "fifo apply queues.toml --dry-run"),
    (export, "fifo export 'shop.*' --out queues.toml"),
    (admin.redrive, "fifo redrive orders.dlq --limit 100 --dry-run"),
    (admin.move, "fifo move orders orders.aside --limit 100 --dry-run"),
    (admin.forget_producer, "fifo forget-producer loader-7 --yes"),
    (admin.transfer_leadership, "fifo transfer-leadership n2"),
):
    app.command(epilog=f"Example: {example}")(command)


@app.command(
    epilog="Example: fifo worker orders:app -c 16",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def worker(context: typer.Context) -> None:
    """Run the tasks of an app until SIGTERM."""
    from fifo.worker.command import main as run_worker

    raise typer.Exit(run_worker(context.args, new_loop))


def _print_version(wanted: bool) -> None:
    if wanted:
        output.say(f"fifo {version('fifo-quorum')}")
        raise typer.Exit


@app.callback()
def root(
    wants_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """fifo: a replicated work queue whose messages and message locks survive
    the loss of a node.

    FIFO_URL sets the default cluster; FIFO_DEBUG=1 prints the traceback of a failure.
    """


def main() -> None:
    """Run the command line of this process; entry point of the ``fifo`` script."""
    # Python sets a stream that the shell closed (`>&-`) to None.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - lives as long as we do
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; never raises."""
    try:
        code = get_command(app).main(list(arguments), prog_name="fifo", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output closed the pipe, as `head` does; Python would warn at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else FAILED
    except Exception as error:
        return _failed(error)
    return code if isinstance(code, int) else 0


def _failed(error: Exception) -> int:
    """Print the failure as one line and return the exit code."""
    if os.environ.get("FIFO_DEBUG"):
        traceback.print_exception(error)
    line, code = _explain(error)
    if line:
        output.err().print(line)
    return code


def _explain(error: Exception) -> tuple[str, int]:
    if isinstance(error, CliError):
        return f"fifo: {error}", error.code
    if isinstance(error, typer.TyperException):
        return _usage_line(error), error.exit_code
    if isinstance(error, ConfigError):
        return f"fifo: {one_line(error)}", FAILED
    if isinstance(error, fifo.FifoError):
        return f"fifo: {one_line(error)}", FAILED
    if isinstance(error, OSError) and error.strerror:
        # A full disk behind the output, an unreadable file: the environment's fault, no bug.
        where = f"{error.filename}: " if error.filename else ""
        return f"fifo: {where}{error.strerror}", FAILED
    problem = f"{type(error).__name__}: {one_line(error)}"
    return f"fifo: unexpected {problem}; set FIFO_DEBUG=1 for the traceback", FAILED


def _usage_line(error: typer.TyperException) -> str:
    """Format a usage error as one line; for a group without a verb, print its help instead."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "fifo"
    if type(error).__name__ == "NoArgsIsHelpError":
        for line in error.format_message().splitlines():
            output.say(line)
        return ""
    message = one_line(Exception(error.format_message()))
    if error.exit_code != USAGE or context is None:
        return f"{command}: {message}"
    return f"{command}: {message.rstrip('.')}; see: {command} --help"
