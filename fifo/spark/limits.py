"""Every bound and period of the data source, each with its unit and its reason.

Owns the numbers; what the client or the broker bounds is checked there.
"""

from __future__ import annotations

from typing import Final

HELD_MAX: Final = 65_535
"""Messages that one durable consumer, or one session's gets on a queue, may hold: the broker's
bound."""

HOLDERS_MAX: Final = 16
"""Durable consumers of one reservation: each is opened, renewed and acked on its own."""

ROWS_MAX: Final = HOLDERS_MAX * HELD_MAX
"""Messages of one micro-batch, or of one `manual` read: a million."""

TOKEN_BITS: Final = 48
"""Bits of a place for the token of its consumer: 280 billion messages of one reservation."""

STEP_MESSAGES: Final = 10_000
"""Messages that one `reserve` may lock: the broker's bound."""

SCAN_LEASE_S: Final = 120.0
"""Lease of the view that a batch read pins: what may pass between its plan and its first task, or
between two tries of a task. Tasks renew it while they live."""

SCAN_MESSAGES: Final = 5_000
"""Messages of one page of a scan; the broker ends one at 4 MiB."""

SCAN_PART_MESSAGES: Final = 100_000
"""Messages of a queue for which a scan has a task, by default."""

SCAN_PARTS_MAX: Final = 64
"""Tasks of a scan by default: each has a connection."""

FETCH_MESSAGES: Final = 5_000
"""Messages that a task fetches at once: each fetch is an entry of the log, whose cost vanishes."""

BATCH_BYTES: Final = 16 * 2**20
"""Bodies that a task fetches at once, the last one in excess; it has two such answers in memory,
the one that Spark takes and the next."""

MAX_BYTES_PER_TRIGGER: Final = 256 * 2**20
"""Default of `maxBytesPerTrigger`: what the smallest executor can hold."""

BYTES_MAX: Final = 2**53
"""The largest number of bytes that an option may have: more than any queue holds."""

VERDICTS: Final = 10_000
"""Rows that a task of `settle` looks at together, to settle those that are alike at once."""

SETTLES_UNDER_WAY: Final = 32
"""Requests of a task of `settle` that wait at once: rows that differ in their reason are a request
each, and a node handles those of a turn together."""

LOST_NAMED: Final = 1_000
"""Tokens that each task of `settle` names where their locks were lost; more are only counted."""

SEND_MESSAGES: Final = 500
"""Rows handed to the client at once: one frame where bodies are small."""

SENDS_UNDER_WAY: Final = 64
"""Calls whose confirms may be outstanding; the client's window of bytes is what limits large
bodies, this bounds the bookkeeping for tiny ones."""

MAX_ROWS_PER_TRIGGER: Final = HELD_MAX
"""Default of `maxRowsPerTrigger`: all that one consumer may hold. A micro-batch costs Spark a
seventh of a second, whatever its size, and it is `maxBytesPerTrigger` that memory bounds."""

SCHEMA_BYTES: Final = 4 * 2**20
"""Of the file of `bodySchemaFile`: it is part of each task."""

INFER_MESSAGES: Final = 1_000
"""Messages that `infer` looks at by default: a second of work."""

LOCK_S: Final = 300.0
"""Default lock of a reservation, the longest there is: a driver that is away for less time finds
its messages unchanged."""

MAX_LOCK_S: Final = 86_400.0
"""Default maximum time that renewals hold a message: longer than any sane batch."""

RENEWALS_PER_LOCK: Final = 3
"""A reservation is renewed after a third of its lock: two renewals may fail before it is lost."""

IDLE_S: Final = 0.1
"""Between two looks at an empty queue: Spark asks a hundred times a second."""

PARTITIONS_MAX: Final = 10_000
"""Of one read: each is a task with a connection."""

MAX_MESSAGES: Final = 2**53
"""The largest `maxMessages`: more than any queue holds."""

PLACE_BITS: Final = 9
"""Bits of a row's number for its place in a chunk, from 1 to SEND_MESSAGES."""

DIGEST_BITS: Final = 16
"""Bits for the digest of all rows up to the end of the chunk: other rows in their place go
unnoticed in one of 65,536 partitions."""

CHUNK_BITS: Final = 18
"""Bits for the chunk: 131 million rows in a partition of one write, or of one batch of a stream."""

BATCH_BITS: Final = 20
"""Bits for a stream's batch, which leaves none of the 63 of a number: behind a million batches the
query's producers get another name."""
