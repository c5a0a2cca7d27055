"""Every limit of the http port: a name, a unit, a reason. Owns nothing else, imports nothing."""

from __future__ import annotations

from typing import Final

QUEUES_LISTED_MAX: Final = 1_000
"""As many as `fifo queue list` shows: more would make a page of megabytes."""

QUEUES_LISTED_PIECE: Final = 10
"""Queues described in one turn of the event loop: about a millisecond."""

CONNECTIONS_MAX: Final = 64
"""Connections of one node: probes, Prometheus and people at a time. With one more, the one that has
waited longest for a request is closed, so that idle ones lock no probe out."""

REQUEST_SECONDS: Final = 5.0
"""A new connection whose first request is not complete by then is closed."""

IDLE_SECONDS: Final = 30.0
"""A connection that was answered and asks nothing more is closed: twice the usual 15 s between two
looks of Prometheus, which keeps its connection."""

ANSWER_SECONDS: Final = 30.0
"""A request that is not answered by then is given up: a password may wait for 10 s."""

STALLED_SECONDS: Final = 5.0
"""A peer that takes nothing of its answer for this long is cut: a page of 10 000 queues is 6 MB."""

UNANSWERED_BYTES_MAX: Final = 32 * 1024
"""Bytes of requests that are not answered yet: one with long headers, or many that do not wait for
each other's answers."""

API_BODY_BYTES_MAX: Final = 16 * 1024
"""The body of a request to the API: options, or the edit of a small message. Half of what may be
unanswered, so that it is refused and not cut."""

API_CALLERS_MAX: Final = 32
"""Sessions on behalf of HTTP callers, one for each user or token: half of the connections."""

API_CALLER_IDLE_SECONDS: Final = 60.0
"""Such a session ends when it was unused for this long: between two looks of a person."""

API_ANSWER_SECONDS: Final = 15.0
"""The time of a request to the API: half of what the port gives it (`ANSWER_SECONDS`)."""
