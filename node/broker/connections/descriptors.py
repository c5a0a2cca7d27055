"""How many client connections this process may hold without endangering its own files.

Owns the arithmetic of file descriptors: a journal that cannot open its next segment stops the node,
so clients must never be able to take the last ones. Must not know sockets.
"""

from __future__ import annotations

import resource

from node.broker import limits


def connections_max() -> int:
    """Raise the soft limit of descriptors as far as allowed; connections that then fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.CONNECTIONS_MAX + limits.DESCRIPTORS_RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if raised > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return fitting(soft)


def fitting(descriptors: int) -> int:
    """Connections that fit beside the node's own files, at least a few."""
    if descriptors == resource.RLIM_INFINITY:
        return limits.CONNECTIONS_MAX
    room = max(descriptors - limits.DESCRIPTORS_RESERVED, descriptors // 4)
    return min(room, limits.CONNECTIONS_MAX)
