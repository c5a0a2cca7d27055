"""The ends of messages for which taskiq has no verb: it can acknowledge, and nothing else.

Owns these settlements. Must not know what a task is.
"""

from __future__ import annotations

import logging

import fifo
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
        await dead(message, "unknown task", f"no worker of this queue knows task {task}")


async def dead(
    message: fifo.Message, reason: str, description: str, error: Exception | None = None
) -> None:
    """Terminate a message; without a dead-letter queue it stays, and is offered again later."""
    _log.error("message %s of queue %s: %s: %s", message.id, message.queue, reason, description)
    try:
        await message.terminate(reason, description, error)
    except fifo.NoDeadLetterQueue:
        await message.release(limits.NO_DEAD_LETTER_DELAY_S)
