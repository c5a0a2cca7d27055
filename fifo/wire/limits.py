"""Every bound of the protocol, each with its unit and its reason.

Owns the numbers that both sides check before they believe a length. Must not know sockets,
queues or Raft. `docs/protocol.md` prints the same figures: change them together.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

FRAME_BYTES_MAX: Final = 8 * MIB
"""One frame, prefix included: what a peer may make us hold before it has said anything useful."""

HEADER_BYTES_MAX: Final = 1 * MIB
"""The msgpack header of a frame: room for 16 KiB stacks and long range lists, not for bodies."""

BODY_BYTES_MAX: Final = 1 * MIB
"""One message body. A configuration may lower it, never raise it: an entry has to hold it whole."""

PUBLISH_BYTES_MAX: Final = 1 * MIB
"""Bodies of one publish frame with more than one message: it goes into one Raft entry whole."""

PUBLISH_MESSAGES_MAX: Final = 10_000
"""Messages of one publish frame: one command of the machine touches no more (semantics.md 1)."""

HEADERS_BYTES_MAX: Final = 64 * KIB
"""Encoded headers of one message."""

KEY_BYTES_MAX: Final = 1 * KIB
"""Key of one message: it is compared and hashed for every checkout."""

DEDUP_ID_BYTES_MAX: Final = 255
"""One dedup id: it stays in the replicated state for the whole window."""

QUEUE_NAME_BYTES_MAX: Final = 255
"""Queue names, tags and producer names: as in AMQP's short strings."""

TEXT_BYTES_MAX: Final = 4 * KIB
"""Error texts, and what else is for people."""

LETTER_TEXT_BYTES_MAX: Final = 16 * KIB
"""Reason, description, exception text and stack of a dead letter, each (semantics.md 9)."""

RANGES_MAX: Final = 10_000
"""Token ranges in one renewal or receipt: the machine's bound for one command is in messages."""

ITEMS_MAX: Final = 10_000
"""Entries in any other list of a header."""

HEADER_CONTAINERS_MAX: Final = 100_000
"""Arrays and maps in one header: twice what the largest receipt needs, a tenth of what fits."""

PLAIN_VALUES_MAX: Final = 100_000
"""Values in one free-form field: looking at each costs the receiver's time."""

MAP_VALUES_MAX: Final = 1_000
"""Values in one map of options: far more than there are options."""

SETTLE_RANGES_MAX: Final = 4_096
"""Token ranges in one settlement or cancel: each costs the machine, however many it covers."""

GET_MESSAGES_MAX: Final = 1_000
"""Messages of one get: they come in one delivery."""

PEEK_MESSAGES_MAX: Final = 1_000
"""Messages of one peek: they come in one answer."""

CONSUMER_PRIORITY_MAX: Final = 1_000
"""A consumer's priority, up or down: ranks among the consumers of one queue."""

CREDIT_MAX: Final = 2**32 - 1
"""Messages that a pulling consumer may ask for at once."""

PREFETCH_MAX: Final = 65_535
"""Messages that one consumer may hold (semantics.md 11)."""

DURATION_MS_MAX: Final = 10 * 365 * 24 * 3600 * 1000
"""Any duration on the wire: ten years, so that sums of two stay far from 2^63."""

HEARTBEAT_MS: Final = 5_000
"""A side that has been silent this long says something (semantics.md 4)."""

HEARTBEATS_MISSED_MAX: Final = 2
"""Silence of this many heartbeats and the connection is taken for dead."""
