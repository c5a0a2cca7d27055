"""The outcome of a log-in: the rights of a user, or why there are none.

Owns these types, for all that verify credentials. Must not know how one is verified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from fifo.wire import Code
from node.broker.permissions import Rights


@dataclass(frozen=True, slots=True)
class Denied:
    """The reason of a refusal. Its text says nothing that helps to guess."""

    code: Code
    text: str


Verdict: TypeAlias = Rights | Denied
Decide: TypeAlias = Callable[[Verdict], None]

BUSY: Final = Denied(Code.OVERLOADED, "too many log-ins at once: retry shortly")
