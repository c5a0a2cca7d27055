"""Every bound of the protocol, each with its unit and its reason.

Owns the numbers that both sides check before they believe a length, and repeats those of
`fifo.words.bounds` that the protocol carries. Must not know sockets, queues or Raft.
`docs/protocol.md` prints the same figures: change them together.
"""

from typing import Final

from fifo.words.bounds import (
    BODY_BYTES_MAX as BODY_BYTES_MAX,
)
from fifo.words.bounds import (
    CONSUMER_PRIORITY_MAX as CONSUMER_PRIORITY_MAX,
)
from fifo.words.bounds import (
    CREDIT_MAX as CREDIT_MAX,
)
from fifo.words.bounds import (
    DEDUP_ID_BYTES_MAX as DEDUP_ID_BYTES_MAX,
)
from fifo.words.bounds import (
    DURATION_MS_MAX as DURATION_MS_MAX,
)
from fifo.words.bounds import (
    GET_MESSAGES_MAX as GET_MESSAGES_MAX,
)
from fifo.words.bounds import (
    HEADERS_BYTES_MAX as HEADERS_BYTES_MAX,
)
from fifo.words.bounds import (
    KEY_BYTES_MAX as KEY_BYTES_MAX,
)
from fifo.words.bounds import (
    KIB as KIB,
)
from fifo.words.bounds import (
    LETTER_TEXT_BYTES_MAX as LETTER_TEXT_BYTES_MAX,
)
from fifo.words.bounds import (
    LISTED_OF_QUEUE_MAX as LISTED_OF_QUEUE_MAX,
)
from fifo.words.bounds import (
    MIB as MIB,
)
from fifo.words.bounds import (
    PREFETCH_MAX as PREFETCH_MAX,
)
from fifo.words.bounds import (
    PUBLISH_ACROSS_MESSAGES_MAX as PUBLISH_ACROSS_MESSAGES_MAX,
)
from fifo.words.bounds import (
    PUBLISH_MESSAGES_MAX as PUBLISH_MESSAGES_MAX,
)
from fifo.words.bounds import (
    PUBLISH_QUEUES_MAX as PUBLISH_QUEUES_MAX,
)
from fifo.words.bounds import (
    QUEUE_NAME_BYTES_MAX as QUEUE_NAME_BYTES_MAX,
)
from fifo.words.bounds import (
    RENEWALS_MAX as RENEWALS_MAX,
)
from fifo.words.bounds import (
    SETTLE_MESSAGES_MAX as SETTLE_MESSAGES_MAX,
)
from fifo.words.bounds import (
    SETTLE_RANGES_MAX as SETTLE_RANGES_MAX,
)

FRAME_BYTES_MAX: Final = 8 * MIB
"""A frame, prefix included: the most that a peer may make us hold before it is understood."""

HEADER_BYTES_MAX: Final = 1 * MIB
"""The msgpack header of a frame: room for 16 KiB stacks and long range lists, not for bodies."""

REQUEST_HEADER_BYTES_MAX: Final = 160 * KIB
"""The header of a frame from a client: the longest settlement that can be carried out, with 1000
lone tokens, their handles and all texts of a dead letter, fits. Whatever a header holds instead, a
node has read it in half of 20 ms."""

PUBLISH_BYTES_MAX: Final = 1 * MIB
"""Bodies of one publish frame with more than one message: it goes into one Raft entry whole."""

TEXT_BYTES_MAX: Final = 4 * KIB
"""Error texts, and what else is for people."""

RANGES_MAX: Final = 10_000
"""Token ranges in one renewal or receipt: the machine's bound for one command is in messages."""

ITEMS_MAX: Final = 10_000
"""Entries in any other list of a header."""

HEADER_CONTAINERS_MAX: Final = 100_000
"""Arrays and maps in one header: twice what the largest receipt needs, a tenth of what fits."""

REQUEST_CONTAINERS_MAX: Final = 16_384
"""Arrays and maps in one header from a client: a renewal of 4096 lone tokens of as many consumers
has fewer; each costs a node a quarter of a microsecond."""

PLAIN_VALUES_MAX: Final = 100_000
"""Values in one free-form field: looking at each costs the receiver's time."""

MAP_VALUES_MAX: Final = 1_000
"""Values in one map of options: far more than there are options."""

PEEK_MESSAGES_MAX: Final = 1_000
"""Messages of one peek: they come in one answer."""

FIND_MESSAGES_MAX: Final = 100
"""Messages of one answer to a find: each says where it stands and who holds it."""

PAGE_MESSAGES_MAX: Final = 10_000
"""Messages of one page of a pinned view: those of equal place in few spots, and bodies of 4 MiB."""

PAGE_HEADERS_MAX: Final = 16
"""Headers that the messages of a page may have to have."""

PIN_BYTES: Final = 16
"""The name of a pin: random, for it can be used from any connection."""

PIN_LEASE_MS: Final = 60_000
PIN_LEASE_MS_MIN: Final = 1_000
PIN_LEASE_MS_MAX: Final = 600_000
"""A pin that is not used for this long ends: it keeps bodies from being let go of."""

PIECE_ENTRIES_MAX: Final = 256
"""Entries of the log in one piece of a pinned view: lone small messages share reads."""

DIGEST_BYTES: Final = 32
"""BLAKE2b of a state."""

MESSAGE_ID_BYTES_MAX: Final = 64
VERSION_BYTES_MAX: Final = 128
"""Texts of numbers: three of up to 19 digits, four of them."""

HEARTBEAT_MS: Final = 5_000
"""A side that has been silent this long says something (semantics.md 4)."""

HEARTBEATS_MISSED_MAX: Final = 2
"""Silence of this many heartbeats and the connection is taken for dead."""

PROOF_BYTES_MAX: Final = 4096
"""A challenge, or the secret that answers it: a token of an identity provider is the longest."""
