"""Every limit of the http port: a name, a unit, a reason. Owns nothing else, imports nothing."""

from __future__ import annotations

from typing import Final

QUEUES_LISTED_MAX: Final = 1_000
"""As many as `fifo queue list` shows: more would make a page of megabytes."""

QUEUES_LISTED_PIECE: Final = 10
"""Queues described in one turn of the event loop: about a millisecond."""

CONNECTIONS_MAX: Final = 64
"""Connections of one node: probes, Prometheus and people at a time. With one more, the one that has
waited longest for a request is closed, so that idle ones lock no probe out."""

REQUEST_SECONDS: Final = 5.0
"""A new connection whose first request is not complete by then is closed."""

IDLE_SECONDS: Final = 30.0
"""A connection that was answered and asks nothing more is closed: twice the usual 15 s between two
looks of Prometheus, which keeps its connection."""

ANSWER_SECONDS: Final = 30.0
"""A request that is not answered by then is given up: a password may wait for 10 s."""

STALLED_SECONDS: Final = 5.0
"""A peer that takes nothing of its answer for this long is cut: a page of 10 000 queues is 6 MB."""

UNANSWERED_BYTES_MAX: Final = 32 * 1024
"""Bytes of requests that are not answered yet: one with long headers, or many that do not wait for
each other's answers."""

API_BODY_BYTES_MAX: Final = 16 * 1024
"""The body of any other request to the API: options. Half of what may be unanswered, so that it is
refused and not cut."""

LARGE_BODY_SECONDS: Final = 1.0
"""More bytes than may be unanswered wait unread for a page that takes them, and not for long."""

HELD_BACK_BYTES_MAX: Final = 1024 * 1024
"""Bytes that wait so: what the system hands over at once, a few times."""

API_BATCH_BYTES_MAX: Final = 3 * 512 * 1024
"""The body of a batch of messages, or of a message that is edited: the longest message as base64,
and some more."""

API_BATCH_MESSAGES_MAX: Final = 1_000
"""Messages of one batch: a few milliseconds of checks in one piece."""

API_BODY_LARGE_BYTES: Final = 64 * 1024
"""JSON of more than this is read and written by one request at a time, a turn of the loop each: a
megabyte takes about ten milliseconds."""

API_GET_MESSAGES_MAX: Final = 100
"""Messages of one get."""

API_GET_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bodies of one get: sixteen of the longest."""

API_GET_WAIT_MS_MAX: Final = 20_000
"""The wait of a get: less than the port gives an answer (`ANSWER_SECONDS`)."""

API_GETS_MAX: Final = 24
"""Gets under way at a time, most of them waiting: what is left of the connections beside streams of
events is for probes and all other requests."""

API_GETS_PER_USER_MAX: Final = 12
"""The share of one user, where there are users: half, as of other pools."""

API_HELD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bodies of messages that one caller holds locked through a node, which remembers them."""

API_HELD_MESSAGES_MAX: Final = 10_000
"""Messages that one caller holds locked through a node."""

API_CHECKED_LOCKS_MAX: Final = 100
"""Locks looked up in a minute that have ended by this node's clock: another node renews them, or
their message was settled there."""

HEADERS_PREFIX: Final = "Fifo-Header-"
"""Headers of a request that become headers of the message."""

API_CALLERS_MAX: Final = 32
"""Sessions on behalf of HTTP callers, one for each user or token of fifo's own, and for each user
and groups of a provider's tokens: half of the connections."""

API_CALLER_IDLE_SECONDS: Final = 60.0
"""Such a session ends when it was unused for this long: between two looks of a person."""

API_TOKENS_MAX: Final = 256
"""Tokens of an identity provider in hand, 4 kB each at most; one that is let go of comes again with
its caller's next request."""

API_ANSWER_SECONDS: Final = 15.0
"""The time of a request to the API: half of what the port gives it (`ANSWER_SECONDS`)."""

SAMPLE_SECONDS: Final = 5.0
"""Between two samples of the queues for the charts of the console: a pixel or two of a chart."""

SAMPLES_MAX: Final = 180
"""Samples kept of each queue: fifteen minutes."""

QUEUES_SAMPLED_MAX: Final = 1_000
"""Queues with samples, in the order of their creation: 6 kB each."""

RATE_SECONDS_MIN: Final = 0.5
"""The shortest time from which a rate is shown: one message in a hundredth of it is no hundred."""

WATCH_SECONDS: Final = 1.0
"""Between two looks at what the console dates: lost nodes, a lost leader, a refusal."""

CONSUMERS_WATCHED_MAX: Final = 10_000
"""Consumers whose changes of state are dated: 200 bytes each."""

CONSUMER_CHANGES_MAX: Final = 6
"""Changes of state kept of each consumer: up, suspected, disconnected and back."""

PICTURE_SECONDS: Final = 1.0
"""Between two answers to a browser: what people follow with their eyes."""

LOOK_SECONDS_MIN: Final = 0.9
"""The console's picture of all queues, and the statuses of the nodes, are not made anew within this
time, however many browsers ask; a little less than between two answers, for no timer is exact."""

PICTURE_SHARE: Final = 0.005
"""The part of a core that pictures may take: where one costs more, the next one is made later, so
that the console stays below 1 % at any number of queues and browsers."""

PICTURE_PIECE: Final = 50
"""Queues looked at in one turn of the event loop: about half a millisecond."""

PICTURE_ANSWERS_MAX: Final = 64
"""Answers kept of one picture, for browsers with the same rights that have the same: 100 kB each at
1,000 queues, where a browser has none of them."""

GONE_QUEUES_MAX: Final = 1_000
"""Deleted queues that a browser is named; one that has missed more gets all queues anew."""

OBSERVE_SECONDS: Final = 1.0
"""A node that has not answered by then is shown as down."""

OBSERVER_IDLE_SECONDS: Final = 15.0
"""The connections to the other nodes end where no browser has looked for this long."""

CONSOLE_STREAMS_MAX: Final = 24
"""Browsers that are pushed what changes: more than a third of the connections. Others ask."""

CONSOLE_STREAMS_PER_USER_MAX: Final = 12
"""The share of one user, where there are users: half, as of other pools."""

QUEUE_VIEW_SECONDS: Final = 0.9
"""The view of one queue is shared for this long by the browsers of a user; a little less than
between two answers, for no timer is exact."""

QUEUE_VIEWS_MAX: Final = 64
"""Views of one queue that are kept: one for each connection."""

QUEUE_ITEMS_SHOWN: Final = 200
"""Locks, consumers and delayed messages of a queue on a page of its view."""

CURSOR_CHARACTERS_MAX: Final = 40
"""The cursor of a page of a list: two numbers."""

EVENTS_SECONDS: Final = 1.0
"""Between two events of a stream: what people follow with their eyes."""

EVENT_STREAMS_MAX: Final = 16
"""Streams of events at a time: a quarter of the connections, so that probes have the others."""

EVENT_STREAMS_PER_USER_MAX: Final = 8
"""The share of one user, where there are users: half, as of other pools."""

EVENTS_PIECE: Final = 100
"""Queues looked at, for events, in one turn of the event loop: about a millisecond."""

EVENTS_QUEUES_PER_LOOK: Final = 2_000
"""Queues looked at in a second: about ten milliseconds. Of more, each is looked at in its turn."""

EVENTS_CONSUMERS_PER_LOOK: Final = 500
"""Consumers counted in a second, in one turn: about a millisecond. Of more, in turn."""

EVENTS_CHANGES_KEPT: Final = 30
"""Looks that a slow reader may be behind; after that it gets everything anew."""

EVENTS_ROWS_MAX: Final = 500
"""Queues in one event: about 200 KiB."""

EVENTS_LISTED_MAX: Final = 100
"""Locks, and consumers, in an event of one queue."""

EVENTS_ANSWER_SECONDS: Final = 0.5
"""An answer that takes the cluster longer comes with a later event, and holds nothing else up."""

EVENTS_SILENCE_SECONDS: Final = 10.0
"""A stream without changes says that it lives: proxies cut what is silent for a minute."""

EVENTS_CHECK_SECONDS: Final = 5.0
"""Between two checks of a listener's credentials: a user that was removed hears no more."""
