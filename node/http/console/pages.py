"""The files of the console, as they lie in `static/`: a page, styles, modules of script.

Owns their addresses, types and headers. No file names an address outside of the node, and the
policy of the page lets a browser ask for none. Must not know what the page shows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from aiohttp import web

PREFIX: Final = "/console/static/"
"""Where the files are served; the page itself is at `/`."""

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""`no-cache`: a browser asks each time whether its copy is that of this version."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its headers, read once."""

    body: bytes
    headers: dict[str, str]


class Pages:
    """Serves the files; they hold no secret, so that anyone may load the form for a log-in."""

    def __init__(self) -> None:
        self._files = {
            path.name: _static_file(path.name, path.read_bytes())
            for path in files(__package__).joinpath("static").iterdir()
            if _type_of(path.name) is not None
        }

    def add_to(self, app: web.Application) -> None:
        """Serve them."""
        app.router.add_get("/", self._serve)
        app.router.add_get(PREFIX + "{name}", self._serve)

    @staticmethod
    def serves(path: str) -> bool:
        """Whether this path is one of the page's files."""
        return path == "/" or path.startswith(PREFIX)

    async def _serve(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info.get("name", _INDEX))
        if found is None:
            raise web.HTTPNotFound
        if request.headers.get("If-None-Match") == found.headers["ETag"]:
            return web.Response(status=304, headers=found.headers)
        return web.Response(body=found.body, headers=found.headers)


def _static_file(name: str, body: bytes) -> StaticFile:
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return StaticFile(body, {**_HEADERS, "Content-Type": _type_of(name) or "", "ETag": etag})


def _type_of(name: str) -> str | None:
    return next((kind for end, kind in _TYPES.items() if name.endswith(end)), None)
