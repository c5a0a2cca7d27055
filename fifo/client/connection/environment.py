"""The environment of the client: clocks, chance, entropy, threads. Tests bring their own.

Owns nothing but the list. The network's seam is the loop that the client runs on.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from fifo.client.connection.threads import LoopThread, OwnLoop


@dataclass(frozen=True, slots=True)
class Environment:
    """`monotonic` decides everything; `wall` is shown to people; `chance` gives 0.0 to 1.0.

    `own_loop` makes what runs the control connection beside the user's loop: a thread.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    entropy: Callable[[int], bytes] = os.urandom
    own_loop: Callable[[], OwnLoop] = LoopThread
