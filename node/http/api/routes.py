"""The form of a route of the API: what is served, and described, of each.

Owns `Route` and the parameters that several routes have. Must not know HTTP: `serving.py` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fifo.client import Client
from fifo.wire.limits import LISTED_OF_QUEUE_MAX
from node.http import limits
from node.http.api.callers import Caller
from node.http.api.params import BODY, PATH, QUERY, Param

Given: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tagged:
    """A result with the version that `If-Match` takes."""

    result: Any
    etag: str


Work: TypeAlias = Callable[[Client, Given], Awaitable[Any]]
Exchange: TypeAlias = Callable[[Caller, Given], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path below `/api/v1`, what they do, and who may ask for it.

    `work` does it by the caller's client, `exchange` by the caller and the locks that it holds;
    without both the route is a stream of events. `conditional`: it takes `If-Match`; `is_raw`: the
    body is the message; `waits`: it may take long, and has places of its own.
    """

    method: str
    path: str
    name: str
    help: str
    permission: str
    work: Work | None
    params: tuple[Param, ...] = ()
    conditional: bool = False
    exchange: Exchange | None = None
    status: int = 200
    body_bytes_max: int = limits.API_BODY_BYTES_MAX
    is_raw: bool = False
    waits: bool = False

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.work is None and self.exchange is None


def number(name: str, help_text: str, low: int, high: int, where: str = QUERY) -> Param:
    """A parameter that is a whole number."""
    return Param(name, where, "integer", help_text, low=low, high=high)


def text(name: str, help_text: str, *, required: bool = False) -> Param:
    """A text in the body."""
    return Param(name, BODY, "string", help_text, required=required)


QUEUE: Final = Param("queue", PATH, "string", "Name of the queue.", required=True)
ID: Final = Param("id", PATH, "string", "Id of the message, as in 3.17.42.", required=True)
LIMIT: Final = number("limit", "Maximum number of items.", 1, LISTED_OF_QUEUE_MAX)
