"""Every bound of the machine alone, with its unit and its reason, in one place.

Owns the numbers; what the protocol and the client bound too stands in `fifo.words.bounds`. Must not
know the code that keeps them. A number here is part of what a command does, so it is the same on
every node: changing one is a change of the machine version. Sections are those of semantics.md.
"""

from typing import Final

STEP_MESSAGES: Final = 10_000
"""Messages that one command may touch; what is left goes on in the next (section 1)."""

BATCH_CHECKOUT_MESSAGES: Final = 10_000
"""Messages handed out after one entry; the rest waits for the next command or tick."""

REMAINS_ENTRIES: Final = 2_000
"""Entries of a deleted queue's tables that each applied entry frees: about a millisecond."""

STEP_OBJECTS: Final = 400
"""Sessions, consumers or producers that one tick may end: each costs ten to forty microseconds, and
a command must not hold up a node's loop for 20 ms."""

RECORD_COST: Final = 4
"""The cost of handing out a message that has a key, and of taking one from its holder, where each
lock counts as a message more: three to eight microseconds."""

HAND_OUT_COST: Final = 16
"""The cost of handing out a message that came back: its record is replaced, fourteen microseconds,
perhaps in the tick that returned as many as it may."""

DELIVERY_COST: Final = 25
"""The cost of a delivery beside its messages: twenty-five microseconds where a thousand consumers
take one message each, forty as the first change after a freeze."""

CONSUMER_COST: Final = 50
"""The cost of a consumer whose locks end, beside those: ninety microseconds for its suspicion and
its notice. A queue in which a producer is forgotten costs as much, and so does a consumer that
leaves with its session, of a queue of its own perhaps."""

GONE_COST: Final = 10
"""The cost of a consumer that goes with its queue: four to ten microseconds."""

BLOCK_COST: Final = 100
"""The cost of a block in which messages are looked for whose ttl is over: a tenth of a millisecond.
Each of them that is locked, and stays, counts as one message more."""

MOVE_MESSAGES: Final = 1_000
"""Messages of one move, or of one step of a redrive: thirteen microseconds each."""

SEARCH_BLOCKS: Final = 4
"""Blocks that one step of a search looks at: a thousand spans each, half a millisecond at worst."""

SEARCH_HOLDS: Final = 2_000
"""Holds that one step of a search looks at, but a consumer's own as a whole: a millisecond."""

SEARCH_MESSAGES: Final = 10_000
"""Messages of one page of a search that may be locked or gone, before the next page."""

PAST_ROWS: Final = 4_096
"""Rows of a frozen queue that one step of making its index looks at: two milliseconds."""

PAST_RUNS: Final = 500
"""Runs of one page of a frozen queue: to find and to send one costs up to ten microseconds."""

LEAVE_COST: Final = 20
"""The cost of a message whose delay ends, or that a limit or its ttl takes out of its queue,
perhaps to its dead-letter queue: twenty to forty microseconds, where a frozen view shares a page of
a thousand with it, as is likely for delays that end in no order of place."""

DROP_COST: Final = 10
"""The cost of a message that gives way to a newcomer and goes to its dead-letter queue: twenty
microseconds, for the victims are found once for the newcomer."""

DROPPING_MESSAGES: Final = STEP_MESSAGES // LEAVE_COST
"""Messages in one publish to a `drop_oldest` queue: each may drop another, and is then stored
alone, thirty to sixty microseconds."""

REPEAT_COST: Final = 5
"""The cost of sending a lock again, a delivery of its own, beside its messages and their runs.
Of what was handed out one by one, twenty to thirty microseconds each, a thousand go in a step."""

ACK_UPTO_MESSAGES: Final = STEP_MESSAGES // RECORD_COST
"""Tokens of one durable ack. Each may pass its key on, and none can be left for later: the receipt
covers all of them."""

KEY_HASHES: Final = 1 << 14
"""Keys whose hashes are remembered, those used last: a look takes a ninth of a hash, and programs
name the same keys again. A few megabytes; 16 MiB where all keys are as long as they may be."""

BLOCK_BITS: Final = 10
BLOCK_MESSAGES: Final = 1 << BLOCK_BITS
"""Messages per block of columns: large enough that a block's own cost vanishes per message, small
enough that one live message does not hold much (decisions.md, "Columns, not objects")."""

AREA_BYTES: Final = 1 << 26
"""Offsets in an entry's area: far above the 2 MiB of an entry, so that a column stays 32 bits."""

QUEUES: Final = 10_000
SESSIONS: Final = 100_000
CONSUMERS_PER_SESSION: Final = 1_000
CONSUMERS_PER_QUEUE: Final = 10_000
NAMED_PRODUCERS: Final = 100_000
DURABLES_PER_QUEUE: Final = 1_000
"""Things that one group may hold: their cost is memory and the length of a walk in a tick."""

SINGLE_ACTIVE_PREFETCH: Final = 2_000
"""On a single-active queue everything a consumer holds is returned in one command (section 6):
seven microseconds each."""

HELD_BY_GET: Final = 65_535
"""Messages held in all by one session's gets on one queue."""

LOCK_DURATIONS: Final = 16
"""Different lock durations that one consumer may hold at once: one index entry for each."""

TAKEN_RANGES: Final = 4_096
"""Ranges of taken tokens kept per consumer; above it the lowest are merged (section 8)."""

NOTICES: Final = 256
"""Notices kept per session; above it the newest are merged into one."""

NOTICE_RANGES: Final = 4_096
"""Ranges in one notice; above it the oldest are left out, and the client learns of those tokens
from its next renewal or settlement."""

HISTORY: Final = 16
"""Attempts that a dead letter remembers, the last ones (section 9)."""

INLINE_TEXT_BYTES: Final = 1_024
"""Longer texts lie in the log behind a handle, not in the state (section 9)."""

EXCEPTION_TYPE_BYTES: Final = 1_024
"""The name of an exception's type: a name, so it is cut and never lies in the log."""

NACK_DELAY_MS_DEFAULT: Final = 1_000
RELEASE_AVOID_MS: Final = 1_000
"""A released message is not given to the consumer that released it for this long (section 7)."""

RESUME_MS: Final = 10_000
"""After a change of leader, sessions that have not resumed in this time become disconnected."""

LEASE_MS: Final = 600
"""For this long after an election a former leader may still grant renewals from memory: the longest
lease of any member, 540 ms (`node/raft`), and a ninth for clocks that differ. A constant of the
machine and not a node's setting: every replica has to set the same floors (section 5)."""

RESUMES: Final = 64
"""Changes of leader within `RESUME_MS` that have a time each, far more than elections in that time;
above it the newest two count as one, and their sessions get the later one's time."""

CANCELLED_MS: Final = 10_000
"""For this long a cancelled consumer of a disconnected session keeps its locks: two heartbeats, so
that what resumes at all after an interruption has resumed."""

PRODUCER_MS: Final = 7 * 86_400_000
"""A named producer lives for this long after its last use (section 10)."""

DURABLE_MS: Final = 7 * 86_400_000
"""A durable consumer lives for this long after its last command (section 11)."""

USERS: Final = 1_000
"""Users in the log: each change looks at all of them."""

USER_BYTES: Final = 16_384
"""Bytes of one user's fields: a thousand users are 16 MiB of state at worst, and an import of one
is far below an entry."""

USER_HASH_BYTES: Final = 300
"""The text form of the largest hash of a password (`node/credentials.py`) has 250."""

USER_PATTERNS: Final = 100
USER_PATTERN_BYTES: Final = 255
"""Patterns of one permission of a user, each as long as the name of a queue."""

USER_TOKENS: Final = 16
"""Tokens, and subjects of certificates, of one user: one for each place that a program runs at."""

TOKEN_NAME_BYTES: Final = 64
USER_SUBJECT_BYTES: Final = 255
"""Names that people read in a list."""

USER_SHARES: Final = 32
USER_SHARE: Final = 1 << 50
"""There are fewer quotas than that, and none is larger (`node/users.py`)."""

IMPORT_BYTES: Final = 1 << 20
"""Fields of all users of one import: it is one command, and an entry has at most 2 MiB."""

SPEC_FIELDS: Final = 32
"""Entries of a queue's spec or a consumer's options as given: there are fewer names than that."""

NUMBER_MAX: Final = (1 << 63) - 1
EVAL_RANGES: Final = 10_000
FLOORS: Final = CONSUMERS_PER_SESSION
"""Entries in a tick's evaluation and in a disconnect: one step's worth."""
