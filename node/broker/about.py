"""Facts of a node beside its log: version, clock, descriptors, certificates.

Owns these lines of a status, all of them cheap to ask for. Must not judge them: `fifo doctor` does.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fifo.machine.contract import VERSION


class About:
    """Facts of this process."""

    def __init__(self, wall_ms: Callable[[], int], connections_max: int) -> None:
        self._wall_ms = wall_ms
        self._connections_max = connections_max
        self._version = release()
        self.keys_problem: Callable[[], str | None] = lambda: None
        """Why the keys of the identity provider were not read."""
        self.certificates: Mapping[str, int] = {}
        """The ends of the certificates that are shown, by port, in milliseconds since 1970."""
        self.configuration = ""
        """The file that this node was configured by, without what it names: for a backup."""

    def view(self, connections: int) -> dict[str, Any]:
        """The facts as they are now."""
        return {
            "version": self._version,
            "machine_version": VERSION,
            "wall_ms": self._wall_ms(),
            "connections": connections,
            "connections_max": self._connections_max,
            "descriptors_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "certificates": dict(self.certificates),
            "jwt_problem": self.keys_problem(),
        }


def release() -> str:
    """The version of the distribution; empty where the code runs without one."""
    try:
        return version("fifo-quorum")
    except PackageNotFoundError:
        return ""
