"""A message of kombu's as a program gets it.

Owns the rule that what could not be decoded is never acknowledged. Must not know how a channel
settles.
"""

from __future__ import annotations

from typing import Any

from kombu.message import Message


class Received(Message):  # type: ignore[misc]  # kombu has no types
    """A message that keeps why its body could not be decoded: an ack sends it to the dead letters.

    Celery acknowledges what it cannot decode, after a line in its log, and it would be gone.
    """

    undecoded: Exception | None = None

    def _decode(self) -> Any:
        try:
            found = super()._decode()
        except Exception as error:
            self.undecoded = error
            raise
        self.undecoded = None
        return found

    def ack(self, multiple: bool = False) -> None:
        """Acknowledge. Raises MessageStateError where it is settled."""
        error = self.errors[0][1] if self.errors else self.undecoded
        if error is None or self.acknowledged or self.channel is None:
            super().ack(multiple)
        else:
            self.channel.refuse(self.delivery_tag, error)
            self._state = "REJECTED"
