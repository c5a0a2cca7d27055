"""A caller that looks at the console.

Owns this one word of its modules. Must not know what is shown.
"""

from __future__ import annotations

from typing import NamedTuple

from node.broker.permissions import Rights
from node.http.api.callers import Credentials


class Viewer(NamedTuple):
    """A caller that looks; `rights` is None where there are no users."""

    credentials: Credentials
    rights: Rights | None
