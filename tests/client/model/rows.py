"""The guarantees of docs/client.md, each with what of the model holds it.

Owns the table: a row is named by the beginning of its sentence, and has the comparisons of
`promises` that would fail, or says why no simulated run can (`test_promises` checks both).
"""

from __future__ import annotations

from typing import Final

ROWS: Final[dict[str, tuple[str, ...]]] = {
    "Confirmed means stored": ("confirmed is stored", "received is what is stored"),
    "What one task publishes": ("in the order of its program", "stored once"),
    "Unanswered publishes are sent": ("stored once",),
    "A call ends within": ("ends in time",),
    "A publish that was refused": ("refused is not stored",),
    "A publish that ended unknown": ("stored once",),
    "A refused list reports": ("a list says how far it came", "refused is not stored"),
    "Publishers go on": ("confirmed is stored", "a missing queue is missing"),
    "What was on its way": ("in doubt is in no later queue",),
    "Consumers go on": ("received is what is stored", "what is asked for comes"),
    "A waiting consumer does not": ("a missing queue is missing", "what is asked for comes"),
    "A named producer": ("a duplicate is the stored one", "stored once"),
    "A dropped connection": ("lost is lost", "no lock is believed in by two"),
    "What is held stays held": ("lost is lost", "a lost lock is reported"),
    "A worker that has left": ("lost is lost", "a lost lock is reported"),
    "A message that is sent again": ("received once",),
    "A settlement is sent again": ("sent is settled or reported", "settled is not locked"),
    "Retries of a settlement": ("ends in time", "not done is not done"),
    "A failed settlement": ("sent is settled or reported", "a failure sets its flag"),
    "A second settlement": ("already settled is settled", "done is done"),
    "Across an ended session": ("not done is not done", "settled was asked for"),
    "A renewal names": ("what is renewed is held", "what is held is renewed"),
    "A deadline counts": ("no lock is believed in by two",),
    "A lost lock is seen": ("a lost lock is reported", "lost is lost"),
    "A lock is lost at": ("a lock that has run out is lost", "no lock is believed in by two"),
    "What the node does not send again": ("a lost lock is reported",),
    "One hung handler": ("what is asked for comes",),
    "A message whose lock ran out": ("received with its lock",),
    "`get` on any number": ("few idle consumers of a get",),
    "A `get` that its program gives up": ("what is given up goes back",),
    "Leaving a consumer": ("what is asked for comes", "settled was asked for"),
    "An iterator that is let go": ("what is asked for comes",),
    "Two consumers of one client": ("tags differ", "lost is lost"),
    "Closing waits": ("ends in time", "sent is settled or reported"),
    "A closed client": ("a closed client leaves nothing",),
    "When the session ended, its": ("a lost lock is reported", "lost is lost"),
    "When the session was gone": ("stored once", "confirmed is stored"),
    "When the session ended, publishes": ("refused is not stored", "stored once"),
    "A client whose session was taken": ("confirmed is stored", "received by its session"),
    "A node that hangs": ("ends in time",),
    "Unanswered publishes are bounded": ("unanswered within the window", "ends in time"),
    "The blocking client": ("done is done", "lost is lost", "received with its lock"),
    "What a durable consumer": ("fetched is what was reserved", "reserved was handed out"),
}

ELSEWHERE: Final[dict[str, str]] = {
    "A handler that blocks the loop": "the simulator has one loop for both threads",
    "A client whose event loop": "a closed loop ends the simulation",
    "A queue that has lost": "a cluster restored from an older state is no fault of a run",
    "A session belongs": "the simulated cluster has no users",
    "A node that reads nothing": "its messages are too small to fill a buffer",
    "A killed leader": "it is a number of real processes",
    "A forked child": "it needs a process",
    "A secret is sent": "the simulated cluster has no users",
}
