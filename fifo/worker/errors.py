"""The errors and signals of the worker.

Owns what handlers raise to speak to the worker, and what the worker says of wrong input. Must not
know how a message is settled.
"""

from __future__ import annotations

from fifo.client import FifoError, InvalidArgument
from fifo.client.durations import Duration


class Retry(Exception):
    """Raised by a handler: this attempt failed as planned; try again after `delay` seconds.

    Without a delay the backoff of the task decides. It counts as a failure, and is logged as one
    line.
    """

    def __init__(self, delay: Duration | None = None, reason: str = "retry") -> None:
        super().__init__(reason)
        self.delay = delay
        self.reason = reason


class TimeLimit(FifoError, TimeoutError):
    """A handler took longer than its task allows."""


class ChildDied(FifoError):
    """The process that ran a handler ended before the handler did."""


class TaskError(FifoError):
    """A task failed, as its caller sees it who waits for the result."""


class BadTask(InvalidArgument):
    """A task cannot be as it is written."""


class CannotLoad(FifoError, ImportError):
    """`module:app` does not lead to an App."""


class Unfit(Exception):
    """A body that does not fit the parameters of its task; the text says where and why."""


class Refused(Exception):
    """A message that can never succeed: `reason` and `description` stand in the dead letter."""

    def __init__(self, reason: str, description: str) -> None:
        super().__init__(f"{reason}: {description}")
        self.reason = reason
        self.description = description


class UnknownTask(Exception):
    """A message of a task that this app does not have; another worker may."""
