"""The bounds of the taskiq broker, each with its unit and its reason."""

from typing import Final

QUEUE: Final = "taskiq"
"""The queue of tasks that name none."""

UNKNOWN_TASK_DELAY_S: Final = 10.0
"""Seconds before a message of an unknown task is offered again: another worker may know it."""

UNKNOWN_TASK_DELIVERIES: Final = 60
"""Deliveries of a message of an unknown task before it is dead: ten minutes, a long deployment."""

RESULTS_MAX: Final = 10_000
"""Results that a process keeps for tasks that it asked for: the oldest go, so that a program that
never looks does not grow."""

RESULT_S: Final = 600.0
"""Seconds for which a result is kept by the process that asked, as long as a reply waits for it."""
