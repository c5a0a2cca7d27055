"""The contract of the machine: everything that other rooms may use of it.

Owns the list, and nothing else: `node` imports from `fifo.machine` only this module, and
`tests/test_house.py` holds it to that. A machine is fed with `Machine.apply_batch(meta, commands)`,
answers with `Outcome` (replies and effects), is asked through the queries of `ReadSide`, and is
written and read back by `Machine.freeze`, `live_entries`, `snapshot_chunks`, `Machine.restoring`.
Whatever is not named here may change without notice.
"""

from fifo.machine import commands, effects, limits, replies
from fifo.machine.commands import Command, code_of, from_list, to_list
from fifo.machine.effects import (
    Activity,
    BlobColumn,
    ConsumerRemoved,
    Deliver,
    Effect,
    Fenced,
    Notify,
    Resumed,
    Run,
    SessionEnded,
)
from fifo.machine.machine import Machine, Meta, Outcome
from fifo.machine.past import Past
from fifo.machine.past_queue import STATES, PastQueue, Seen, Sought
from fifo.machine.queries import Held, HeldRange
from fifo.machine.read_side import ConsumerFigures, DurableView, QueueFigures, ReadSide
from fifo.machine.replies import Refused, Reply
from fifo.machine.restored import as_new_cluster
from fifo.machine.search import PLACES, Standing, Wanted
from fifo.machine.snapshot.bodies import live as live_entries
from fifo.machine.snapshot.format import SnapshotError
from fifo.machine.snapshot.format import chunks as snapshot_chunks
from fifo.machine.state.records import VERSION, Frozen, RedriveState
from fifo.machine.types import Attempt, DeadLetter, EndCause, Range, Role, Text, TextPlace
from fifo.machine.user_form import TokenRecord, UserRecord
from fifo.machine.verbs.redrive import parse_filter
from fifo.words.codes import RefusalCode
from fifo.words.settlement import AttemptOutcome, Reason, Status, Verb

__all__ = [
    # Commands, replies and effects: each module is a closed union of value types.
    "commands",
    "replies",
    "effects",
    "limits",
    "Command",
    "code_of",
    "from_list",
    "to_list",
    "Reply",
    "Refused",
    "Effect",
    "Deliver",
    "Run",
    "BlobColumn",
    "Notify",
    "Activity",
    "Resumed",
    "Fenced",
    "ConsumerRemoved",
    "SessionEnded",
    # The machine, and what comes with an entry.
    "Machine",
    "Meta",
    "Outcome",
    "VERSION",
    # Queries and what they return.
    "ReadSide",
    "QueueFigures",
    "ConsumerFigures",
    "DurableView",
    "Held",
    "HeldRange",
    "PLACES",
    "Standing",
    "Wanted",
    "RedriveState",
    "parse_filter",
    # The past: a frozen view, read by people.
    "Past",
    "PastQueue",
    "STATES",
    "Seen",
    "Sought",
    # Types that commands, replies and effects are made of.
    "Attempt",
    "AttemptOutcome",
    "RefusalCode",
    "DeadLetter",
    "EndCause",
    "Range",
    "Reason",
    "Role",
    "Status",
    "Text",
    "TextPlace",
    "TokenRecord",
    "UserRecord",
    "Verb",
    # Snapshots, and a state that another cluster goes on from.
    "as_new_cluster",
    "Frozen",
    "SnapshotError",
    "live_entries",
    "snapshot_chunks",
]
