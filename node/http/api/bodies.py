"""The bodies of requests: read up to a bound, and JSON without holding the loop up.

Owns the bounds of one body, its type, and the order in which large JSON is read and written. Must
not know routes beyond their bounds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from fifo.wire import Code
from node.http import limits
from node.http.api.problems import Problem

JSON: Final = "application/json"
_IDENTITY: Final = ("", "identity")


async def read(
    request: web.Request, bytes_max: int, *, is_raw: bool, allow: Callable[[int], None]
) -> bytes:
    """The body, of at most this many bytes; `allow` lets the peer send more. Raises Problem."""
    if not request.can_read_body:
        return b""
    if request.headers.get("Content-Encoding", "").lower() not in _IDENTITY:
        text = f"the body must not be encoded, not {request.headers['Content-Encoding']:.40}"
        raise Problem(Code.UNSUPPORTED, text, status=415)
    if not is_raw and request.content_type != JSON:
        text = f"the body must be {JSON}, not {request.content_type}"
        raise Problem(Code.UNSUPPORTED, text, status=415)
    if (request.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    allow(bytes_max)
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
    return bytes(body)


def _too_large(bytes_max: int) -> Problem:
    text = f"the body of this request has at most {bytes_max} bytes"
    return Problem(Code.TOO_LARGE, text)


class Large:
    """Work on large bodies, one in a turn of the event loop: many at once would hold it up."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def wait(self, size: int) -> None:
        """Wait for a turn, if a body of this size needs one."""
        if size > limits.API_BODY_LARGE_BYTES:
            async with self._turn:
                await asyncio.sleep(0)

    async def dumped(self, result: Any, size: int) -> bytes:
        """The JSON of a result whose bodies have this size."""
        await self.wait(size)
        return json.dumps(result).encode()
