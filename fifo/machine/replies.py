"""What a command answers. Every command has exactly one reply; bad input is answered `Refused`.

Owns the reply types; turning them into bytes is the broker's business: replies are not logged.
Update with it: the table in `docs/machine.md`, and the broker, which turns them into frames.
"""

from dataclasses import dataclass
from typing import Any

Detail = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing that it names (what a batch stored before stays stored).

    `code` is one of `types.Code`; `text` is for a person; `detail` is plain data for a program,
    for example {"expected": 17} with `gap`, or {"differences": {...}} with `queue_exists`.
    """

    code: str
    text: str
    detail: Detail | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """It is so now."""


@dataclass(frozen=True, slots=True)
class Led:
    """A term was opened: `sessions` exist and are detached until they resume."""

    sessions: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """`more`: something that is due did not fit into this step; propose the next tick at once."""

    more: bool


@dataclass(frozen=True, slots=True)
class Attached:
    """`consumers`: (consumer number, tag, queue, lock_ms) of what the resumed session has."""

    session: int
    epoch: int
    resumed: bool
    consumers: tuple[tuple[int, str, str, int], ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """`created` is false where a queue with this very spec was there."""

    queue: int
    created: bool


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many messages went with the queue."""

    messages: int


@dataclass(frozen=True, slots=True)
class Purged:
    """Messages removed so far; `more` are removed by the next ticks, without being asked again."""

    messages: int
    more: bool


@dataclass(frozen=True, slots=True)
class ProducerOpened:
    """`last`: the number last stored in each queue it has published to, by queue name."""

    producer: int
    last: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Published:
    """The first `duplicates + stored` messages are confirmed; the rest was refused for `refused`.

    `producer` is the machine-wide number that is part of the message ids, `queue` likewise.
    """

    queue: int
    producer: int
    stored: int
    duplicates: int
    refused: Refused | None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """`active` is false for a consumer that waits on a single-active queue."""

    consumer: int
    queue: int
    lock_ms: int
    prefetch: int
    active: bool


@dataclass(frozen=True, slots=True)
class Got:
    """`count` messages from `first_token` on come as Deliver effects; 0 where nothing is ready.

    `consumer` is the session's implicit consumer, under which they are settled.
    """

    consumer: int
    first_token: int
    count: int


@dataclass(frozen=True, slots=True)
class Credited:
    """`left` is the credit after what was handed out of what is ready now; 0 after a drain."""

    left: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """(first token, last token, status, late) in the order of the settlement's ranges."""

    consumer: int
    ranges: tuple[tuple[int, int, int, bool], ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """`messages` were moved; `cursor` is where the next step of a redrive goes on, 0 at its end."""

    messages: int
    cursor: int


@dataclass(frozen=True, slots=True)
class DurableOpened:
    """`next_token` is what the next reserved message gets; `held` are the tokens still locked."""

    consumer: int
    generation: int
    next_token: int
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Reserved:
    """`count` messages from `first_token` on were locked for the durable consumer."""

    consumer: int
    first_token: int
    count: int


Reply = (
    Refused
    | Done
    | Led
    | Ticked
    | Attached
    | Declared
    | Deleted
    | Purged
    | ProducerOpened
    | Published
    | Subscribed
    | Got
    | Credited
    | Receipt
    | Moved
    | DurableOpened
    | Reserved
)
