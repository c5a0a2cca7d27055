"""Actions on one message, by its id (semantics.md 14): their names and numbers.

Owns the numbers, which are in the log: a value is never given a new meaning, and a new one is only
ever added at the end. Must not know what an action does.
"""

from enum import IntEnum


class Action(IntEnum):
    """The actions of an operator on one message."""

    RETRY = 0
    UNLOCK = 1
    DELAY = 2
    CANCEL = 3
    DELETE = 4
    TERMINATE = 5
    MOVE = 6
    RESEND = 7


ACTIONS = {action.name.lower(): action for action in Action}
"""The actions by the names that the wire, the client and the command line have for them."""
