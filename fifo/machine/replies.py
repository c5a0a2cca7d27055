"""The replies to commands. Every command has exactly one; bad input is answered `Refused`.

Owns the reply types; turning them into bytes is the broker's business: replies are not logged.
Update with it: the table in `docs/machine.md`, and the broker, which turns them into frames.
"""

from typing import Any, NamedTuple

from fifo.machine.record import value

Detail = dict[str, Any]


@value
class Refused:
    """The command changed nothing that it names (what a batch stored before stays stored).

    `code` is one of `types.Code`; `text` is for a person; `detail` is plain data for a program,
    for example {"expected": 17} with `gap`, or {"differences": {...}} with `queue_exists`.
    """

    code: str
    text: str
    detail: Detail | None = None


@value
class Done:
    """The command was applied; there is nothing to report."""


@value
class Led:
    """A term was opened: `sessions` exist and are detached until they resume."""

    sessions: int


@value
class Ticked:
    """`more`: something that is due did not fit into this step; propose the next tick at once."""

    more: bool


@value
class Attached:
    """`consumers`: (consumer number, tag, queue, lock_ms) of what the resumed session has;
    `handle_key`: the session's, whichever attach brought it."""

    session: int
    epoch: int
    resumed: bool
    consumers: tuple[tuple[int, str, str, int], ...]
    handle_key: bytes


@value
class Declared:
    """`created` is false where a queue with this very spec was there."""

    queue: int
    created: bool


@value
class Deleted:
    """The queue was deleted, and `messages` messages with it."""

    messages: int


@value
class Purged:
    """Messages removed so far; `more` are removed by the next ticks, without being asked again."""

    messages: int
    more: bool


@value
class ProducerOpened:
    """`last`: (name, number of the queue, number last stored) of each queue it has published to."""

    producer: int
    last: tuple[tuple[str, int, int], ...]


class Repeat(NamedTuple):
    """`count` messages of a batch from `place` on were not stored, for their dedup ids are known:
    they are the messages of `producer` in the same queue from `number` on."""

    place: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which a repeat has no use for
    producer: int
    number: int

    def follows(self, place: int, producer: int, number: int) -> bool:
        """Whether the message at `place` is the next one of this stretch."""
        ahead = place - self.place
        return self.count == ahead and (self.producer, self.number + ahead) == (producer, number)


@value
class Published:
    """The first `duplicates + stored` messages are confirmed; the rest was refused for `refused`.

    `producer` is the machine-wide number that is part of the message ids, `queue` likewise. What is
    in `repeats` was stored before, under the id that stands there.
    """

    queue: int
    producer: int
    stored: int
    duplicates: int
    refused: Refused | None
    repeats: tuple[Repeat, ...] = ()


@value
class PublishedAcross:
    """For each queue of the command, in its order, what a publish to it alone is answered."""

    parts: tuple[Published | Refused, ...]


@value
class Subscribed:
    """`active` is false for a consumer that waits on a single-active queue."""

    consumer: int
    queue: int
    lock_ms: int
    prefetch: int
    active: bool


@value
class Got:
    """`count` messages from `first_token` on come as Deliver effects; 0 where nothing is ready.

    `consumer` is the session's implicit consumer, under which they are settled. `more`: the step
    ended before it had looked at all that is ready, so that who asks again may get something.
    """

    consumer: int
    first_token: int
    count: int
    more: bool = False


@value
class Credited:
    """`left` is the credit after what was handed out of what is ready now; 0 after a drain.

    `more`: a drain's step ended before it had looked at all that is ready. All the same nothing is
    left to be used; `left` is then what was not, to be asked for again.
    """

    left: int
    more: bool = False


@value
class Receipt:
    """(first token, last token, status, late) in the order of the settlement's ranges."""

    consumer: int
    ranges: tuple[tuple[int, int, int, bool], ...]


@value
class Moved:
    """`messages` were moved; `cursor` is where the next step of a redrive goes on, 0 at its end."""

    messages: int
    cursor: int


@value
class DurableOpened:
    """`next_token` is what the next reserved message gets; `held` are the tokens still locked,
    `lost` those that were taken from it, until an ack says that their answer was heard."""

    consumer: int
    generation: int
    next_token: int
    held: tuple[tuple[int, int], ...]
    lost: tuple[tuple[int, int], ...] = ()


@value
class Reserved:
    """`count` messages from `first_token` on were locked for the durable consumer, or are sent to
    it again. `rest`: the token from which on a fetch has to go on; 0 where all was sent. `more`: as
    in `Got`, of a reserve. `left_bytes`: what their bodies leave of `max_bytes`. `lost`: the tokens
    up to there that were taken from it: the other holes were settled."""

    consumer: int
    first_token: int
    count: int
    rest: int = 0
    more: bool = False
    left_bytes: int = 0
    lost: tuple[tuple[int, int], ...] = ()


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
    | PublishedAcross
    | Subscribed
    | Got
    | Credited
    | Receipt
    | Moved
    | DurableOpened
    | Reserved
)
