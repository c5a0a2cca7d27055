"""Bugs of publishes to several queues, for the hunt of `mutants`.

Owns those bugs, each as one place in the source of one function. Must not know what notices them.
"""

from __future__ import annotations

from fifo.machine.verbs import columns, publish
from tests.mutants.switch import Switch, edited

BUGS: dict[str, Switch] = {
    "a queue's messages in a publish to several have the bodies of the first one's": edited(
        columns, "_parts", "bodies_at += bodies_bytes", "pass"
    ),
    "a queue's messages in a publish to several have the keys of the first one's": edited(
        columns, "_parts", "keys_at += sum(part.key_lengths)", "pass"
    ),
    "a queue's messages in a publish to several have the headers of the first one's": edited(
        columns, "_parts", "headers_at += sum(part.header_lengths)", "pass"
    ),
    "a publish to several queues is for whatever queues have the names": edited(
        columns, "_parts", "queue_below=below", "queue_below=0"
    ),
    "a gap in a publish to several queues is not noticed": edited(
        columns, "_parts", "previous,\n", "0,\n"
    ),
    "numbers in a publish to several queues may begin before the one before": edited(
        publish, "_store", "not command.previous < number or ", ""
    ),
}
