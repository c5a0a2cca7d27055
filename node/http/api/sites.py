"""Requests of pages: one of another site may change nothing here.

Owns the rule, which no option opens. A browser sends what it knows of us, its address at least,
with requests of any page; it says where a request that changes something comes from, and asks
before it sends one that no form could send (which we never allow). Must not know routes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

from aiohttp import web

from fifo.wire import Code
from node.http.api.problems import Problem

HEADER: Final = "Fifo-Request"
"""A header that a form, or a page without our leave, cannot send."""

_SAFE: Final = frozenset(("GET", "HEAD"))
_FORMS: Final = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
_NEVER_OF_A_FORM: Final = (HEADER, "Idempotency-Key", "If-Match", "X-Requested-With")


def check(request: web.Request, names: Collection[str], *, guarded: bool) -> None:
    """Refuse a request of another site that changes something. `names`: the hosts of this cluster;
    `guarded`: it has users, so an address alone opens nothing. Raises Problem."""
    if request.method in _SAFE:
        return
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    ours = f"{request.scheme}://{request.host}"
    if (origin is not None and origin != ours) or site not in ("same-origin", "none"):
        text = f"a page of {origin or 'another site'} may not change anything here"
        raise Problem(Code.PERMISSION_DENIED, text)
    if origin is not None and not guarded and not _is_ours(request.host, names):
        # A name of another site that was led to this address: its pages are of one origin with us.
        text = (
            f"a page may change something here only under an address or a name of a node, not"
            f" {request.host!r:.80}: open that, or configure users"
        )
        raise Problem(Code.PERMISSION_DENIED, text)
    kind = request.content_type if "Content-Type" in request.headers else ""
    if request.method == "POST" and kind in _FORMS and not _has_a_header(request):
        text = (
            "a request that changes something must be one that no form of a page can send: add the"
            f" header `{HEADER}: 1`, or `Content-Type: application/json` (a message of any other"
            " type: application/octet-stream)"
        )
        raise Problem(Code.PERMISSION_DENIED, text)


def _has_a_header(request: web.Request) -> bool:
    if any(name in request.headers for name in _NEVER_OF_A_FORM):
        return True
    return request.headers.get("Authorization", "").lower().startswith("bearer ")


def _is_ours(host: str, names: Collection[str]) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
