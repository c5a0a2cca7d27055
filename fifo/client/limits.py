"""Every bound and period of the client, each with its unit and its reason.

Owns the numbers; what the protocol bounds stands in `fifo.wire.limits` and is not repeated here.
Must not know how anything is done. `docs/client.md` prints those that users can change.
"""

from __future__ import annotations

from typing import Final

from fifo.wire import limits as wire
from fifo.words import bounds

TCP_TIMEOUT_S: Final = 1.0
"""To open one TCP connection: a live node on any sane network answers in a fraction of it."""

TLS_TIMEOUT_S: Final = 3.0
"""The same with its TLS handshake, which a node with much to do answers later."""

OPENING_TIMEOUT_S: Final = 3.0
"""From hello to welcome: the attach has to be committed; a paused leader never answers."""

STAGGER_S: Final = 0.15
"""Before the next node is tried while one has not answered: a dead one must not hold us up."""

REDIAL_JITTER_S: Final = 0.01
"""Longest pause before all nodes are asked at once after a lost connection: the clients of a leader
lose it in one instant."""

REDIAL_EARLY_S: Final = 0.02
"""The longest of the first pauses after that: the nodes may notice a moment after their clients."""

REDIAL_EARLY_ROUNDS: Final = 3
"""Rounds with so short a pause."""

REDIAL_MAX_S: Final = 1.0
"""Pause after a refused control connection, and the longest that a node may ask for: an election
takes about a second."""

REDIAL_PATIENCE_S: Final = 5.0
"""In the first seconds without a leader the pause stays at a few tenths, whatever was doubled."""

REDIAL_PATIENT_MAX_S: Final = 0.2
"""The longest pause in those first seconds: it is time without publishing."""

REDIAL_UNREACHED_S: Final = 1.0
"""The longest pause while others name a leader that is not reached from here: they go by what their
clients have said in the last 5 s."""

DEADLINES_KEPT: Final = 4_096
"""Waits in the line of deadlines from which on those that have ended are taken out of its middle:
four windows of frames, so that it is rare."""

RETRY_S: Final = 0.05
"""Pause before a refused publish is sent again, and the shortest one between two retries of a
settlement without a connection: a backoff of zero must not keep the program busy."""

STALL_S: Final = 1.2
"""Silence on a connection that owes answers before it is asked for a sign of life; the same again
and it is given up. A paused leader would otherwise hold its clients for two heartbeats."""

UNSENT_BYTES_MAX: Final = 1 * wire.MIB
"""Bytes that the transport may hold unsent: beyond it asyncio's one buffer goes quadratic."""

JOIN_BYTES_MAX: Final = 16 * wire.KIB
"""Buffers up to here are joined before a write; larger ones go to the transport as they are."""

WRITE_BYTES: Final = 256 * wire.KIB
"""Small buffers are joined up to this size: about what one send takes."""

FRAME_MESSAGES: Final = 500
"""Messages of one publish frame: the cost per frame has vanished, the first confirm comes soon."""

FRAME_BYTES: Final = 512 * wire.KIB
"""Bodies of one publish frame with several messages; half of what the protocol allows, so that two
frames fill one entry and the node works on one while the next is on its way."""

FRAME_COLUMN_BYTES: Final = 256 * wire.KIB
"""Keys, headers and dedup ids of one publish frame: half of what the protocol allows."""

TOGETHER_MESSAGES: Final = 50
"""Messages of a frame that still shares one with those to other queues: above, what a frame costs
is little beside its messages."""

WINDOW_FRAMES: Final = 1_000
"""Publish frames not yet answered: bounds memory where bodies are tiny, as `window_bytes` does."""

ACKS_GATHERED: Final = 512
"""Acks of one consumer that are sent without waiting for the end of the loop's turn."""

ACKS_WAIT_S: Final = 0.002
"""Seconds that acks wait for more while an earlier settlement of their consumer is unanswered."""

NOTICES_WAIT_S: Final = 0.05
"""Seconds that the acknowledgement of a notice waits for further ones, which it then covers: about
the look of a leader's lock clock, for which the node lets it wait anyway."""

TURN_MESSAGES: Final = 128
"""Messages handed out before the loop gets a turn, so that a full buffer starves no other task."""

SETTLE_ANSWER_S: Final = 5.0
"""Seconds without a receipt, on a live connection, before a settlement is sent again."""

SETTLE_TOKENS: Final = bounds.SETTLE_MESSAGES_MAX
"""Tokens of one settlement or cancellation: the machine's bound for one command."""

RENEW_TOKENS: Final = 2**63
"""A renewal touches ranges, not messages: it may name any number of tokens."""

UNSTORED_S: Final = bounds.WRITING_SESSION_MS / 1000 - 10
"""A publish sent less than this ago is not stored if its session is gone: with it the session would
have been kept for a minute. Less by 10 s, for clocks run at different rates."""

THREAD_JOIN_S: Final = 2.0
"""Seconds to wait for a thread that was asked to end."""

GAPS_MAX: Final = 1_000
"""Ranges of tokens that were skipped and may still come, remembered per consumer."""

CONSUMERS_KNOWN_MAX: Final = 1_000
"""Consumers of other sessions whose queue is remembered, after their messages were settled here."""

NAMES_KNOWN_MAX: Final = 4_096
"""Names that were found to be sound and are not looked at again: a few hundred bytes each."""

QUEUE_NUMBERS_MAX: Final = 1_000
"""Queues whose numbers are remembered, those seen last: without one, a publish whose answer was
lost may be called unknown though it could be sent again."""

GETS_IDLE_MAX: Final = 100
"""Consumers of `get`, each of one queue, that are kept with nothing in hand: those used last.
A program that goes round fewer queues makes none anew, and one that visits thousands leaves nearly
all of the 1,000 consumers of its session to what it works on."""

LOST_MAX: Final = 65_535
"""Tokens of one consumer known as lost and not yet finished: no consumer may hold more."""

PLACES_MAX: Final = 2_000
"""Places that a consumer takes with `prefetch="auto"`: 150,000 messages a second over 13 ms, and as
many as a single-active queue allows, of which the client does not know."""

PLACES_BYTES: Final = 16 * wire.MIB
"""Bodies that such a consumer holds, by their mean size: 150 MB a second over 100 ms."""

PLACES_IN_HAND: Final = 100
"""Messages that a program may have in its hands with `prefetch="auto"` and not settle, while it
asks for more with one task: it may be collecting a batch, or starting a task for each, which knows
no end. More tasks than this that wait at once are each given a message all the same."""

PLACES_WHEN_PULLING: Final = 100
"""Prefetch of a pulling consumer with `prefetch="auto"`: its program says by credit what it wants,
and this much is below what a worker should hold of anything."""

STARVED_PART: Final = 0.75
"""Part of the places that is taken when a program that waits counts as starved. Not all: answers
to settlements come a moment before the deliveries for which they make room."""

STARVED_SHARE: Final = 1 / 50
"""Time that a program waits for messages that lie in the queue, per time it works, from which on a
consumer takes more places. Less is not worth a message that waits here while others could have it:
an hour's job is never taken ahead of its time to save 5 ms."""

KEYS_OUT_PLACES: Final = 64
"""Places that a consumer keeps though all keys of its queue are out: in few keys there is no more
to win than a round trip, and each of them is worth its place."""

KEYS_OUT_S: Final = 5.0
"""Seconds without more places for a round trip after that. Keys come and go with the publishers,
and to look again costs what it costs for some milliseconds."""

BUFFERED_S: Final = 0.5
"""Seconds that a message may lie in the buffer of a consumer with `prefetch="auto"`: what lies here
is no other consumer's. Far above any round trip."""

BUFFERED_PART_OF_LOCK: Final = 1 / 8
"""The same as a part of the lock, where that is less: most of it is the handler's."""

SIZE_MEMORY: Final = 0.75
"""Weight of the deliveries before in the mean size of messages: some eight deliveries count, so
that one large message among many does not take the places of all."""

RENEWALS_PER_LOCK: Final = 3
"""A lock is renewed after a third of it: two renewals may fail before it is lost."""

RENEWAL_PATIENCE: Final = 0.5
"""Part of the time between two renewals after which an unanswered one makes the client ask the
other nodes: with locks of 2 s after a third of a second, so that a leader that stops right after a
renewal is left 1.2 s later. The next one is elected after 0.6 to 1 s, and gives every lock its
whole duration."""

RENEW_RETRY_S: Final = 0.1
"""Before a renewal is tried again that was answered "not now" (no lease yet)."""

REPLACED_S: Final = 1.0
"""Seconds that a consumer waits for the next queue of its name after its queue was deleted: a
program that declares a queue anew does so within milliseconds of its deletion."""

REPLACED_LOOK_S: Final = 0.1
"""Between two looks for it. A look for a queue that is not there costs the node no log entry."""

GAP_RESENDS: Final = 3
"""A frame answered `gap` so often behind the same unanswered one: that one was lost, start over."""

LOCK_S_MIN: Final = bounds.LOCK_MS_MIN / 1000
LOCK_S_MAX: Final = bounds.LOCK_MS_MAX / 1000
"""Locks are short and renewed (semantics.md 3)."""

URL_CHARS_MAX: Final = 4_096
"""A connection URL: longer ones are an accident."""

HOSTS_MAX: Final = 64
"""Nodes in a URL: as many as a welcome may list."""

NO_DEAD_LETTER_DELAY_S: Final = 60.0
"""Before a message is offered again that no program can read and that has no dead-letter queue to
go to: often enough to be seen, and no load."""
