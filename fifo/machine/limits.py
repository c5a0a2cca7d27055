"""Every bound of the machine, with its unit and its reason, in one place.

Sections are those of semantics.md.

Knows nothing of the code that keeps them. A number here is part of what a command does, so it is
the same on every node: changing one is a change of the machine version.
"""

from typing import Final

STEP_MESSAGES: Final = 10_000
"""Messages that one command may touch; what is left goes on in the next (section 1)."""

BATCH_CHECKOUT_MESSAGES: Final = 10_000
"""Messages handed out after one entry; the rest waits for the next command or tick."""

REMAINS_ENTRIES: Final = 2_000
"""Entries of a deleted queue's tables that each applied entry frees: about a millisecond."""

STEP_OBJECTS: Final = 1_000
"""Sessions, consumers or producers that one tick may end: each costs some ten microseconds."""

RECORD_COST: Final = 4
"""What handing out a message that came back or has a key counts for, and what taking one from its
holder: a lock or a record of its own, five to ten microseconds, and a command must not hold up a
node's loop for 50 ms."""

LEAVE_COST: Final = 20
"""What a message counts for whose delay ends, or that a limit or its ttl takes out of its queue,
perhaps to its dead-letter queue: twenty to forty microseconds, where a frozen view shares a page of
a thousand with it, as is likely for delays that end in no order of place."""

DROP_COST: Final = 10
"""What a message counts for that gives way to a newcomer and goes to its dead-letter queue: twenty
microseconds, for who has to go is found out once for the newcomer."""

DROPPING_MESSAGES: Final = STEP_MESSAGES // LEAVE_COST
"""Messages in one publish to a `drop_oldest` queue: each may drop another, and is then stored by
itself, thirty to sixty microseconds."""

REPEAT_COST: Final = 5
"""What sending a lock again counts for beside its messages and their runs: a delivery of its own.
Of what was handed out one by one, twenty to thirty microseconds each, a thousand go in a step."""

SETTLE_MESSAGES: Final = 1_000
ACK_UPTO_MESSAGES: Final = STEP_MESSAGES // RECORD_COST
"""Tokens of one settlement or cancellation, and of one durable ack. Each may become a dead letter,
or pass its key on, and none can be left for later: the receipt speaks of all of them."""

BLOCK_BITS: Final = 10
BLOCK_MESSAGES: Final = 1 << BLOCK_BITS
"""Messages per block of columns: large enough that a block's own cost vanishes per message, small
enough that one live message does not hold much (decisions.md, "Columns, not objects")."""

BODY_BYTES: Final = 1 << 20
AREA_BYTES: Final = 1 << 26
"""Offsets in an entry's area: far above the 2 MiB of an entry, so that a column stays 32 bits."""

PUBLISH_MESSAGES: Final = 10_000
"""Messages in one publish command: it is one step."""

KEY_BYTES: Final = 1_024
HEADERS_BYTES: Final = 64 << 10
"""Key and headers of one message: columns are sliced whole, so one message must stay small."""

DEDUP_ID_BYTES: Final = 255
"""One dedup id: it stays in the state for the whole window."""

DURATION_MS: Final = 10 * 365 * 86_400_000
"""Any delay, ttl or backoff: ten years are enough for anybody, and times stay far from 63 bits."""

QUEUE_NAME_BYTES: Final = 255
LABEL_BYTES: Final = 255
"""Consumer tags, producer names, users, addresses: labels that people read."""

QUEUES: Final = 10_000
SESSIONS: Final = 100_000
CONSUMERS_PER_SESSION: Final = 1_000
CONSUMERS_PER_QUEUE: Final = 10_000
NAMED_PRODUCERS: Final = 100_000
DURABLES_PER_QUEUE: Final = 1_000
"""Things that one group may hold: their cost is memory and the length of a walk in a tick."""

CONSUMER_PRIORITY: Final = 1_000
"""A consumer's priority is from minus this to this: a spec's field, checked like the others."""

PREFETCH: Final = 65_535
SINGLE_ACTIVE_PREFETCH: Final = 10_000
"""On a single-active queue everything a consumer holds is returned in one command (section 6)."""

GET_MESSAGES: Final = 1_000
HELD_BY_GET: Final = 65_535
"""Messages of one get, and held in all by one session's gets on one queue."""

LOCK_MS_MIN: Final = 1_000
LOCK_MS_MAX: Final = 300_000
LOCK_MS_DEFAULT: Final = 30_000
MAX_LOCK_MS_DEFAULT: Final = 1_800_000
MAX_LOCK_MS_MAX: Final = 7 * 86_400_000
"""Locks are short and renewed (section 3); max_lock bounds what renewals can add up to."""

LOCK_DURATIONS: Final = 16
"""Different lock durations that one consumer may hold at once: one index entry for each."""

SETTLE_RANGES: Final = 4_096
"""Token ranges in one settlement: the cost of a command is in ranges as well as in messages."""

TAKEN_RANGES: Final = 4_096
"""Ranges of taken tokens kept per consumer; above it the lowest are merged (section 8)."""

NOTICES: Final = 256
"""Notices kept per session; above it the newest are merged into one."""

NOTICE_RANGES: Final = 4_096
"""Ranges in one notice; above it the oldest are left out, and the client learns of those tokens
from its next renewal or settlement."""

HISTORY: Final = 16
"""Attempts that a dead letter remembers, the last ones (section 9)."""

TEXT_BYTES: Final = 16 << 10
"""One text that a dead letter keeps, reason, description, exception text or stack (section 9): four
of them and their message fit well into the frame that brings them."""

INLINE_TEXT_BYTES: Final = 1_024
"""What is longer lies in the log behind a handle, not in the state (section 9)."""

EXCEPTION_TYPE_BYTES: Final = 1_024
"""The name of an exception's type: a name, so it is cut and never lies in the log."""

NACK_DELAY_MS_DEFAULT: Final = 1_000
RELEASE_AVOID_MS: Final = 1_000
"""A released message is not given to the consumer that released it for so long (section 7)."""

MAX_DELIVERIES_DEFAULT: Final = 20
MAX_DELIVERIES_MAX: Final = 1_000_000

BACKOFF_TABLE: Final = 64
MULTIPLIER_THOUSANDTHS_MIN: Final = 1_100
MULTIPLIER_THOUSANDTHS_MAX: Final = 1_000_000
"""From 1.1 on, a backoff reaches its maximum in some 300 steps: a bounded loop (section 7)."""

SESSION_TIMEOUT_MS: Final = 300_000
"""A session that stays disconnected for so long ends; never less than the longest lock."""

RESUME_MS: Final = 10_000
"""After a change of leader, sessions that have not resumed in this time become disconnected."""

PRODUCER_MS: Final = 7 * 86_400_000
"""A named producer lives so long after its last use (section 10)."""

DURABLE_MS: Final = 7 * 86_400_000
"""A durable consumer lives so long after its last command (section 11)."""

DEDUP_IDS: Final = 1_000_000
DEDUP_WINDOW_MS_MAX: Final = 7 * 86_400_000
"""Remembered dedup ids per queue; at the bound, publishing with one is refused (section 10)."""

QUEUE_LENGTH_MAX: Final = 1 << 40
QUEUE_BYTES_MAX: Final = 1 << 50
GRACE_MS_MAX: Final = SESSION_TIMEOUT_MS
EXPIRES_UNUSED_MS_MIN: Final = 1_000

SPEC_FIELDS: Final = 32
"""Entries of a queue's spec or a consumer's options as given: there are fewer names than that."""

NUMBER_MAX: Final = (1 << 63) - 1
CREDIT_MAX: Final = (1 << 32) - 1
EVAL_RANGES: Final = 10_000
FLOORS: Final = CONSUMERS_PER_SESSION
"""Entries in a tick's evaluation and in a disconnect: one step's worth."""
