"""What the client takes from the world: clocks, chance, entropy. Tests bring their own.

Owns nothing but the list. The network's seam is the loop that the client runs on.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seams:
    """`monotonic` decides everything; `wall` is shown to people; `chance` gives 0.0 to 1.0."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    entropy: Callable[[int], bytes] = os.urandom
