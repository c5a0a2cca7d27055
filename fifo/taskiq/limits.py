"""The bounds of the taskiq broker, each with its unit and its reason."""

from typing import Final

QUEUE: Final = "taskiq"
"""The queue of tasks that name none."""

UNKNOWN_TASK_DELAY_S: Final = 10.0
"""Seconds before a message of an unknown task is offered again: another worker may know it."""

UNKNOWN_TASK_DELIVERIES: Final = 60
"""Deliveries of a message of an unknown task before it is dead: ten minutes, a long deployment."""

NO_DEAD_LETTER_DELAY_S: Final = 60.0
"""Seconds before a message is offered again that can never succeed and has no dead-letter
queue."""
