"""Names of queues, consumers, producers and clients: which characters they may not contain.

Owns that rule. Lengths are in `bounds`. The characters are listed, not asked of Python's Unicode
tables, which differ between versions, while every node has to decide alike.
"""

from __future__ import annotations

import re
from typing import Final

_REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal or a log obeys: C0, DEL, C1, line separators, marks of direction."""


def refused_character(name: str) -> str | None:
    """The first character that no name may contain, as `U+001B`; None where there is none."""
    found = _REFUSED.search(name)
    return None if found is None else f"U+{ord(found.group()):04X}"
