"""Every bound that more than one room checks, with its unit and its reason, in one place.

Owns the numbers that client, protocol and machine must agree on: a value that one lets through is
taken by the others. Bounds of one room alone stand in that room's `limits.py`.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

BODY_BYTES_MAX: Final = 1 * MIB
"""A message body. A configuration may lower it, never raise it: an entry has to hold it whole."""

PUBLISH_MESSAGES_MAX: Final = 10_000
"""Messages of one publish: one command of the machine touches no more (semantics.md 1)."""

PUBLISH_QUEUES_MAX: Final = 250
"""Queues of one publish to several: each is looked up and changed, forty microseconds as its first
change after a freeze, and all of them in one command."""

PUBLISH_ACROSS_MESSAGES_MAX: Final = 500
"""Messages of such a publish: as many as a queue that drops its oldest takes in one command."""

HEADERS_BYTES_MAX: Final = 64 * KIB
"""Encoded headers of one message: columns are sliced whole, so one message must stay small."""

KEY_BYTES_MAX: Final = 1 * KIB
"""Key of one message: it is compared and hashed for every checkout."""

DEDUP_ID_BYTES_MAX: Final = 255
"""A dedup id: it stays in the replicated state for the whole window."""

QUEUE_NAME_BYTES_MAX: Final = 255
"""Queue names, consumer tags, producer names, users, addresses: as in AMQP's short strings."""

LETTER_TEXT_BYTES_MAX: Final = 16 * KIB
"""Reason, description, exception text and stack of a dead letter, each (semantics.md 9): four of
them and their message fit well into the frame that brings them."""

SETTLE_RANGES_MAX: Final = 4_096
"""Token ranges in one settlement or cancel: each costs the machine, however many it covers."""

SETTLE_MESSAGES_MAX: Final = 1_000
"""Tokens of one settlement or cancellation. Each may become a dead letter, or pass its key on, and
none can be left for later: the receipt covers all of them."""

GET_MESSAGES_MAX: Final = 1_000
"""Messages of one get: they come in one delivery."""

LISTED_OF_QUEUE_MAX: Final = 1_000
"""Locks, delayed messages, consumers or producers of one queue in one answer: some ten milliseconds
of a leader's loop, in one piece, because they change with every entry."""

CONSUMER_PRIORITY_MAX: Final = 1_000
"""A consumer's priority, up or down: ranks among the consumers of one queue."""

PREFETCH_MAX: Final = 65_535
"""Messages that one consumer may hold (semantics.md 11)."""

CREDIT_MAX: Final = 2**32 - 1
"""Messages that a pulling consumer may ask for at once."""

PRIORITY_MAX: Final = 9
PRIORITY_DEFAULT: Final = 4
"""A message's priority: 9 is delivered first (semantics.md 5)."""

DURATION_MS_MAX: Final = 10 * 365 * 86_400_000
"""Any duration: ten years, so that sums of two stay far from 2^63."""

LOCK_MS_MIN: Final = 1_000
LOCK_MS_MAX: Final = 300_000
LOCK_MS_DEFAULT: Final = 30_000
"""Locks are short and renewed (semantics.md 3)."""

TOTAL_LOCK_MS_MAX: Final = 7 * 86_400_000
TOTAL_LOCK_MS_DEFAULT: Final = 1_800_000
"""The longest total lock, renewals included."""

RENEWALS_MAX: Final = TOTAL_LOCK_MS_MAX // LOCK_MS_MIN
"""Automatic renewals of one lock: more would pass the longest total lock."""

SESSION_TIMEOUT_MS: Final = 300_000
"""A session that stays disconnected for this long ends; never less than the longest lock."""

WRITING_SESSION_MS: Final = 60_000
"""A session that only published or settled is kept for this long after a disconnect: its numbers
recognise a publish that is repeated (semantics.md 4)."""

MAX_DELIVERIES_DEFAULT: Final = 20
MAX_DELIVERIES_MAX: Final = 1_000_000
"""Failed deliveries before a message is dead-lettered; the default needs a dead-letter queue."""

QUEUE_LENGTH_MAX: Final = 1 << 40
QUEUE_BYTES_MAX: Final = 1 << 50
"""Limits that an operator may set for a queue: far above what memory holds."""

EXPIRES_UNUSED_MS_MIN: Final = 1_000
"""Shorter, and a queue could vanish between its declaration and its first use."""

DEDUP_IDS_MAX: Final = 1_000_000
DEDUP_WINDOW_MS_MAX: Final = 7 * 86_400_000
"""Remembered dedup ids per queue; at the bound, publishing with a new one is refused."""

BACKOFF_TABLE_MAX: Final = 64
"""Delays in a backoff table."""

BACKOFF_CHARS_MAX: Final = 4_096
"""A backoff's text form: a table of long delays fits several times."""

MULTIPLIER_THOUSANDTHS_MIN: Final = 1_100
MULTIPLIER_THOUSANDTHS_MAX: Final = 1_000_000
"""From 1.1 on, an exponential backoff reaches its maximum in some 300 steps: a bounded loop."""
