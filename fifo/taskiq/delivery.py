"""The ends of messages for which taskiq has no verb: it can acknowledge, and nothing else.

Owns these settlements. Must not know what a task is.
"""

from __future__ import annotations

import logging

import fifo
from fifo.client import adapting
from fifo.taskiq import limits

_log = logging.getLogger("fifo.taskiq")


async def later(message: fifo.Message, task: str) -> None:
    """Give back a message of a task that this worker does not know, for others; dead in the
    end."""
    if message.attempt < limits.UNKNOWN_TASK_DELIVERIES:
        _log.warning(
            "message %s is of task %s, which this worker does not know: offered again in %g s",
            message.id,
            task,
            limits.UNKNOWN_TASK_DELAY_S,
        )
        await message.release(limits.UNKNOWN_TASK_DELAY_S, receipt=False)
    else:
        description = f"no worker of this queue knows task {task}"
        await adapting.dead(message, "unknown task", description, None, _log)


async def unreadable(message: fifo.Message, error: Exception) -> None:
    """Terminate a message that taskiq cannot read."""
    description = f"{type(error).__name__}: {error}"
    await adapting.dead(message, "cannot be decoded", description, error, _log)
