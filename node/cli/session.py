"""The connection of a command: the choice of the cluster, and the text of client errors.

Owns the address (--url, $FIFO_URL, the cluster in ``.fifo``) and the translation of the client's
errors into lines with a remedy. Must not know the commands.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

import fifo
from fifo.client import (
    NOTHING,
    Connecting,
    ConnectKeywords,
    Given,
    Options,
    from_environment,
    from_keywords,
    from_url,
)
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.limits import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S
from node.cli.state import FOLDER_DEFAULT, SINGLE, ClusterFolder
from node.config import single_node_config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

T = TypeVar("T")

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="FIFO_URL",
        metavar="URL",
        help="Cluster, as fifo://host:port,host:port (default: the one started in .fifo).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def choose_url(url: str | None) -> str:
    """Choose the address for a command; raise CliError where there is none."""
    if url:
        return url if "://" in url else f"fifo://{url}"
    state = ClusterFolder(FOLDER_DEFAULT).load()
    if state is not None:
        return state.url
    single = FOLDER_DEFAULT / SINGLE
    if single.is_dir():
        return single_node_config(single).url
    raise CliError(
        "no cluster address: start a cluster with `fifo cluster start`, or pass"
        " --url fifo://host:port"
    )


def node_options(url: str, given: Given = NOTHING) -> Options:
    """Gather the options of a connection; raise UsageProblem where one is invalid.

    `given` wins over the URL, that over the file of $FIFO_CONFIG, and that over the command line's
    own limits.
    """
    limits: ConnectKeywords = {"timeout": CALL_TIMEOUT_S, "connect_timeout": CONNECT_TIMEOUT_S}
    with _usage():
        return from_url(url, given, from_environment().over(from_keywords(limits)))


def run(
    url: str | None,
    work: Callable[[fifo.Client], Awaitable[T]],
    consumer: Mapping[str, Any] | None = None,
) -> T:
    """Connect, do the work and close; translate client errors to CliError.

    `consumer` are the options that the client's consumers begin with.
    """
    with _usage():  # before the address is chosen: a usage error needs no cluster
        given = from_keywords(consumer or {})
    options = node_options(choose_url(url), given)
    try:
        return asyncio.run(_work(options, work))
    except fifo.FifoError as error:
        raise cli_error(error, options.shown) from error


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """Translate what the client refuses about options to UsageProblem."""
    try:
        yield
    except fifo.InvalidArgument as error:
        raise UsageProblem(one_line(error)) from None


def cli_error(error: fifo.FifoError, url: str) -> CliError:
    """Translate a client error to one line with a remedy; `url` has no secret in it.

    An argument that the client refuses locally is a usage error: exit code 2.
    """
    said = one_line(error)
    match error:
        case fifo.InvalidArgument() if error.code is None:
            return UsageProblem(said)
        case fifo.QueueNotFound():
            return CliError(f"{said}; list the queues: fifo queue list")
        case fifo.MessageNotFound():
            return CliError(f"{said}; find it: fifo message find QUEUE")
        case fifo.QueueExists():
            return CliError(f"{said}; change it: fifo queue update NAME")
        case fifo.QueueFull():
            return CliError(f"{said}; consume from it, or raise its limit: fifo queue update NAME")
        case fifo.NoDeadLetterQueue():
            return CliError(f"{said}; set one: fifo queue update NAME --dead-letter NAME.dlq")
        case fifo.Unsupported():
            return CliError(f"unsupported by the cluster at {url}: {said}")
        case fifo.AuthenticationFailed():
            return CliError(f"{said} (cluster at {url})")
        case fifo.PermissionDenied():
            return CliError(f"{said}; permissions are in the [[user]] sections of cluster.toml")
        case fifo.Timeout() if error.unknown:
            return CliError(f"{said}; the request may have been executed: check before retrying")
        case fifo.ConnectionLost() | fifo.Timeout():
            return CliError(
                f"{said}; check that the cluster at {url} is running and has a leader: fifo status"
            )
        case _:
            return CliError(said)


async def _work(options: Options, work: Callable[[fifo.Client], Awaitable[T]]) -> T:
    async with Connecting(options) as client:
        return await work(client)
