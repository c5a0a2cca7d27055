"""Every bound and period of a worker, each with its unit and its reason.

Owns constants only. Must not know how anything is done.
"""

from __future__ import annotations

from typing import Final

from fifo.words import bounds

CONCURRENCY: Final = 16
"""Messages at work at once in a process, by default: handlers mostly wait, and few hold much."""

CONCURRENCY_MAX: Final = bounds.PREFETCH_MAX
"""More could not be held: one place of the prefetch for each."""

MAX_DELIVERIES: Final = bounds.MAX_DELIVERIES_DEFAULT
"""Failed deliveries of a message, by default: the queue's own."""

GRACE_SECONDS: Final = 25.0
"""Time that handlers have to end once the worker drains: Kubernetes kills after 30 by default."""

UNKNOWN_TASK_DELAY_SECONDS: Final = 10.0
"""Pause before a message of an unknown task is offered again: another worker may know it."""

UNKNOWN_TASK_DELIVERIES: Final = 60
"""Deliveries of a message of an unknown task before it is dead: ten minutes, a long deployment."""

NO_DEAD_LETTER_DELAY_SECONDS: Final = 60.0
"""Pause before a message is offered again that can never succeed and has no dead-letter queue."""

RELEASE_SECONDS: Final = 2.0
"""Time that cancelled handlers have to end before the worker leaves them: their messages are
released by then."""
