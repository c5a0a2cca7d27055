"""The environment of the client: clocks, chance, entropy, threads. Tests bring their own.

Owns nothing but the list.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from fifo.client.connection.threads import CallerThread, Crossing, LoopThread, OwnLoop

Dial: TypeAlias = Callable[
    [Callable[[], asyncio.Protocol], str, int, ssl.SSLContext | None], Awaitable[object]
]
"""Connects what the factory makes to a host and port, encrypted with a context."""


async def over_tcp(
    factory: Callable[[], asyncio.Protocol], host: str, port: int, context: ssl.SSLContext | None
) -> None:
    """Connect by the sockets of the running loop."""
    await asyncio.get_running_loop().create_connection(factory, host, port, ssl=context)


@dataclass(frozen=True, slots=True)
class Environment:
    """`monotonic` decides everything; `wall` is shown to people; `chance` gives 0.0 to 1.0.

    `own_loop` makes what runs the control connection beside the user's loop: a thread. `crossing`
    makes what takes the calls of a blocking client to its loop: a thread as well. `dial` opens
    connections.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    entropy: Callable[[int], bytes] = os.urandom
    own_loop: Callable[[], OwnLoop] = LoopThread
    crossing: Callable[[], Crossing] = CallerThread
    dial: Dial = over_tcp
