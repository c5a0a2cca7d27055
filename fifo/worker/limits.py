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

DEDUP_SECONDS: Final = 86_400.0
"""Time for which due times are remembered: a repeat comes when a worker is there again after a
crash. A queue remembers a million ids, which is eleven schedules of every second."""

DEDUP_ID_BYTES_MAX: Final = bounds.DEDUP_ID_BYTES_MAX
"""A longer name of a schedule keeps its end, with the due time."""

LATE_SECONDS: Final = 60.0
"""A due time that is later than this was missed, for a schedule that does not catch up."""

CATCH_UP_MAX: Final = 1_000
"""Missed due times that are sent at once: a week of every ten minutes."""

REPLY_TTL_SECONDS: Final = 600.0
"""Time for which a result waits for its caller."""

REPLY_UNUSED_SECONDS: Final = 60.0
"""Time after which the reply queue of a caller that has gone is deleted."""

BEAT_SECONDS: Final = 1.0
"""Interval of signs of life of a worker process."""

SILENT_SECONDS: Final = 15.0
"""Silence after which a worker process counts as hung: three of the default periods of a probe."""

BLOCKED_SECONDS: Final = 5.0
"""Time for which a handler may hold the event loop before a line says where it stands."""

RESTART_SECONDS: Final = 1.0
RESTART_SECONDS_MAX: Final = 30.0
"""Pause before a worker process that ended is started again; doubled each time up to the second,
and begun anew once one has worked for that long."""

RELOAD_SECONDS: Final = 0.5
"""Interval of looks for changed files with --reload."""

PROBE_BYTES_MAX: Final = 4_096
"""Bytes of a request to the health port."""

PROBE_SECONDS: Final = 5.0
"""Time for a request to the health port."""

PROCESSES_MAX: Final = 256
"""Worker processes of one command: more than the cores of large machines."""

CALL_SECONDS: Final = 30.0
"""Time for which a caller waits for a result, by default: that of every call of the client."""

LINE_CHARS_MAX: Final = 1_000
"""Characters of an error in a line of the log: more than a sentence, and no page of a database."""

LAST_WORDS_SECONDS: Final = 1.0
"""Time for what a process wrote before its end to arrive."""
