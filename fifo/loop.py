"""The choice of the event loop: uvloop where it is installed, else asyncio's own.

Owns the choice only, for nodes, benchmarks and load jobs. Needs no third package: the client works
without uvloop, which comes with the server.
"""

from __future__ import annotations

import asyncio


def has_uvloop() -> bool:
    """Whether `new_loop` makes uvloop's event loop."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


def new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop, the faster one where there is a choice."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
