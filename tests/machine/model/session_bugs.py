"""Bugs of sessions and their connections, for the hunt of `mutants`.

Owns those bugs, each as one place in the source of one function. Must not know what notices them.
"""

from __future__ import annotations

from fifo.machine import checks
from fifo.machine.verbs import sessions
from tests.mutants.switch import Switch, edited

BUGS: dict[str, Switch] = {
    "a resume replaces the secret of its session": edited(
        sessions,
        "attach",
        "session.client = command.client",
        "session.handle_key = command.handle_key",
    ),
    "a client object takes its session back from the one that took it": edited(
        sessions,
        "attach",
        "command.resume and session.incarnation != command.incarnation",
        "False",
    ),
    "an older connection is believed": edited(
        checks,
        "session",
        "if epoch != found.epochs[role]:",
        "if epoch > found.epochs[role]:",
    ),
}
