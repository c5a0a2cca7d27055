"""The bounds of the dramatiq broker, each with its unit and its reason."""

from typing import Final

DEAD_TTL_S: Final = 7 * 86_400.0
"""Seconds that a dead letter is kept by default: as long as dramatiq's other brokers keep it."""

ENQUEUE_ATTEMPTS: Final = 2
"""Times that a message is published: the second time to a queue that was deleted and is declared
anew."""

NO_DEAD_LETTER_DELAY_S: Final = 60.0
"""Seconds before a rejected message is offered again that has no dead-letter queue to go to."""

PRIORITY: Final = 4
"""The priority of a message that names none: fifo's own."""

PRIORITY_MAX: Final = 9
"""The highest priority of fifo; a higher one is taken for it."""

POLL_S: Final = 0.05
"""Seconds between two looks of `join` at a queue."""

RESULTS_MAX: Final = 10_000
"""Results that a process keeps for messages that it sent: the oldest go, so that a program that
never looks does not grow."""

RESULT_S: Final = 600.0
"""Seconds for which a result is kept by the process that asked: dramatiq's own time to live."""
