"""Every limit of the broker: a name, a unit, a reason. Owns nothing else, and imports nothing.

A limit that an operator may change is a key of the configuration's `[limits]` section instead;
those that the protocol fixes for both sides are in `fifo/wire/limits.py`.
"""

from __future__ import annotations

from typing import Final

ROLE_CHANGES_MAX: Final = 100
"""Changes of role that a node shows: days of a healthy cluster, minutes of a sick one."""

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- gathering -----------------------------------------------------------------------------------

GATHER_BYTES: Final = 1 * MIB
"""An entry stops gathering here: half of what an entry may be, so that one more frame fits."""

GATHER_SECONDS: Final = 0.002
"""Longest wait for company while an earlier entry is on its way: at 45 000 messages/s it saves a
third of the CPU and costs nothing at the 99th percentile."""

COMPANY_BYTES_MIN: Final = 4 * KIB
"""Behind an entry of more the next publishes wait for company: where messages come one by one, less
often than entries do, each leaves at once."""

COMPANY_PART: Final = 0.25
"""Part of the time that the last entry took to commit, for which company is waited for where that
took longer than GATHER_SECONDS: on slow disks too those who were answered soon ask again."""

GATHER_COMMANDS_MAX: Final = 4_096
"""Commands in one entry: bounds its size where commands carry no bodies."""

GATHER_MICROSECONDS_MAX: Final = 21_000
"""Time that applying the commands of one entry may take (`cost.py`), except a single command: two
publishes of a thousand messages. The weights are the worst of each, so that an entry of small
commands takes less than 20 ms with the deliveries that follow it (`python -m bench.sweep`)."""

PUBLISH_MICROSECONDS_MAX: Final = 10_000
"""Time that applying the messages of one publish may take, for those that are stored one by one: a
publish of more is several commands."""

HEADERS_AT_ONCE_BYTES: Final = 64 * KIB
"""Headers of a publish that are checked in one piece, in 3 ms: those of one message at least."""

ENTRIES_IN_FLIGHT_MAX: Final = 64
"""Entries handed to Raft and not answered: what comes beyond waits in the gatherer, whose size
then stops the reading of requests."""

IN_FLIGHT_BYTES_MAX: Final = 16 * MIB
"""Bytes of those entries: below the 32 MiB at which Raft stops appending."""

GATHERED_BYTES_MAX: Final = 32 * MIB
"""Waiting in the gatherer of a leader; above it no client connection is read until half is gone."""

# --- turns of clients -----------------------------------------------------------------------------

SHARE_ITEMS_MAX: Final = 128
"""Frames, or pieces of a long answer, that one connection may have handled before the others get
their turn: half a millisecond of pings."""

SHARE_SECONDS: Final = 0.001
"""The same in time; a frame that takes longer ends the share."""

TURN_ITEMS_MAX: Final = 1_024
"""Frames of all connections in one turn of the event loop, after which it looks at its sockets and
timers again: peers and heartbeats wait no longer than this."""

TURN_SECONDS: Final = 0.005
"""The same in time: a tenth of the 50 ms that a turn of the loop may take, a twentieth of a
heartbeat of Raft."""

STRETCH_SECONDS_AIM: Final = 0.020
"""CPU time of one stretch of work on the loop above which it is counted as long: no request, query
or frame takes more."""

STRETCH_NOTED_SECONDS: Final = 0.001
"""Shorter stretches of a client's frames, and shorter turns, are not noted: they are of no interest
beside those that are."""

STRETCH_READING_SECONDS: Final = 0.002
"""Longest age of a reading of the CPU clock at the begin of a stretch, and so the most by which one
is shown too long. Two readings for each cost 1 % of a lone publish and more of a batch."""

STRETCH_WINDOW_SECONDS: Final = 300.0
"""The longest stretches are those of the last one or two of these: several scrapes see each."""

# --- time ----------------------------------------------------------------------------------------

GAP_SECONDS_MAX: Final = 1.0
"""A longer pause between two turns counts as this much: a paused node must not expire locks that
no client could renew (semantics.md section 2)."""

TICK_SECONDS: Final = 10.0
"""While anything waits for time, cluster time is committed at least this often."""

REQUESTS_TIMED_MAX: Final = 4_096
"""Unanswered requests of a connection whose time is taken: as many as it may have in flight."""

LOOK_SECONDS: Final = 0.05
"""Period of the lock clock: a fifth of the 250 ms by which an expiry may be late."""

UPGRADE_LOOK_SECONDS: Final = 1.0
"""A leader that raises the version without being asked looks this often whether it may: a member
that starts is connected and has said what it can within a second."""

DUE_SOON_MS: Final = 1_000
"""A tick shares its entry with other commands only if nothing but the locks that it names falls due
for this long, which is longer than a batch waits for its entry."""

NOTICE_ACK_SECONDS: Final = 1.0
"""Acknowledgements of notices wait no longer than this for a tick that leaves them room."""

TICKS_IN_FLIGHT_MAX: Final = 4
"""Ticks on their way to the log, each for expired locks of other consumers: enough that the next is
there when one is applied, which takes as long as its round; few, for each holds up its turn."""

LOOK_CONSUMERS_MAX: Final = 1_000
"""Consumers looked at in one look, some ten microseconds each; the next look goes on."""

LOOK_TOKENS_MAX: Final = 1 << 20
"""Tokens of one consumer in a look: more than anybody can hold, so that renewed ones cannot hide
expired ones behind them."""

EVAL_RANGES_MAX: Final = 2_500
"""Token ranges in one tick; what is left follows in the next."""

EVAL_MESSAGES_MAX: Final = 2_500
"""Tokens in one tick: one command of the machine returns no more."""

RENEWED_RANGES_MAX: Final = 4_096
"""Renewed ranges remembered per consumer; a renewal that needs more is answered `not_now`, for what
is granted must be remembered. One of tokens that are renewed already replaces what it was."""

LAPSED_MS: Final = 1_000
"""Granted renewals are remembered for this long after they end: the lateness of an expiry is
measured against them."""

# --- connections ---------------------------------------------------------------------------------

CONNECTIONS_MAX: Final = 20_000
"""Client connections of one node: two for each of the 10 000 sessions; fewer where the system
gives the process too few descriptors (`descriptors.py`)."""

UNOPENED_MAX: Final = 512
"""Connections that have not been welcomed; with one more, the oldest of them is closed."""

OPENING_SECONDS: Final = 5.0
"""A connection that has not said a valid hello by then is closed."""

OPENING_LEADERLESS_SECONDS: Final = 10.0
"""A valid hello that no leader could welcome by then is answered and closed."""

HEARTBEAT_MS_MIN: Final = 500
HEARTBEAT_MS_MAX: Final = 30_000
"""Bounds of a requested heartbeat: shorter ones load the node, longer ones hide dead peers."""

DISK_LOOK_SECONDS: Final = 1.0
"""Period in which the free space of the disk is looked at."""

ALARM_BACK_PARTS: Final = 4
"""An alarm ends a quarter of its threshold past it: a disk that settlements free in small pieces
takes publishes again for seconds and not for one of them."""

SWEEP_SECONDS: Final = 0.25
"""Period in which heartbeats, openings and stalled peers are looked at: half a shortest beat."""

UNREACHED_AFTER_SECONDS: Final = 3.0
"""A client that reaches a follower and not the leader counts when it has said so for this long: an
election takes one second, and a client gives a leader three to answer a hello."""

UNREACHED_SECONDS: Final = 5.0
"""When a client has not said so again for this long, it counts no more: it has found the leader, or
has given up. Clients say it each second or two."""

UNREACHED_NEWS_SECONDS: Final = 2.0
"""A client that said so within this time is not asked again who it is: a password takes the CPU of
many messages to check."""

UNREACHED_SESSIONS_MAX: Final = 4_096
"""Clients that a follower remembers of those: what fits in one note to the leader. More say nothing
new, unless a leader that is cut off from them serves as many others."""

UNREACHED_TELL_SECONDS: Final = 1.0
"""Between two notes of a follower about them; the leader goes by those of the last two periods."""

LEADER_MOVE_SECONDS: Final = 30.0
"""A leader does not move for clients that cannot reach it sooner after its election, or after it
tried to: a move costs some round trips, and whatever clients claim, there are two in a minute."""

WRITE_BYTES: Final = 512 * KIB
"""Handed to a transport at once. The standard loop copies what the socket does not take, so what
lies behind stays in the connection's own queue, uncopied."""

OUTPUT_BYTES_MAX: Final = 32 * MIB
"""Answers waiting for one peer that does not read; above it the connection is closed. Deliveries
wait as handles and do not count."""

OUTPUT_ITEMS_MAX: Final = 100_000
"""The same bound for what waits as handles: more than a consumer's prefetch can hold."""

STALLED_SECONDS: Final = 30.0
"""A peer that has taken nothing for this long while something waits for it is closed."""

CLOSING_SECONDS: Final = 5.0
"""A closing connection gets this long to take its last frames, then it is cut."""

REQUESTS_IN_FLIGHT_MAX: Final = 4_096
"""Unanswered requests of one connection; above it the connection is not read until half is gone."""

REQUEST_BYTES_IN_FLIGHT_MAX: Final = 16 * MIB
"""Bytes of those requests."""

DELIVER_BYTES: Final = 1 * MIB
"""Bodies in one delivery frame, or one message: keeps frames small enough to interleave."""

DELIVER_HEADER_BYTES: Final = 512 * KIB
"""Header of a delivery frame, where the runs' origins and dead letters with their stacks stand:
half of what the protocol allows."""

CONFIRMS_PER_FRAME_MAX: Final = 8_192
"""Items of one confirms frame: below the protocol's 10 000."""

REFUSED_PER_FRAME_MAX: Final = 128
"""The same where a publish was refused: each may say so in 4 KiB."""

# --- who it is ------------------------------------------------------------------------------------

LOGIN_FAILURES_FREE: Final = 3
"""Failures of one name at one address that cost nothing: people mistype."""

LOGIN_FAILURES_FREE_PER_ADDRESS: Final = 30
"""The same for all names of one address: many machines may share it."""

LOGIN_DELAY_SECONDS_MIN: Final = 0.25
LOGIN_DELAY_SECONDS_MAX: Final = 2.0
"""The wait of the next try, doubled with each failure more; a client waits 3 s for its welcome."""

LOGIN_FORGET_SECONDS: Final = 60.0
"""Half of the failures are forgotten in this time."""

LOGIN_ADDRESSES_MAX: Final = 10_000
"""Names at addresses whose failures are remembered, and addresses at which a secret was right; the
oldest are forgotten beyond it."""

LOGINS_DELAYED_PER_ADDRESS_MAX: Final = 16
"""Tries of one address that wait; one more is refused as overloaded, unverified."""

LOGINS_CHECKED_PER_ADDRESS_MAX: Final = 64
"""Different passwords of one address that wait for the hashing thread, which does about five a
second: what comes later would be given up by its client. One more is refused as overloaded."""

LOGINS_CHECKED_MAX: Final = 1_024
"""Different passwords that wait in all, a choice among them takes under a millisecond; one more
takes the place of the one whose address has failed most."""

JWT_KEYS_BYTES_MAX: Final = 256 * 1024
"""The keys of an identity provider: a few kilobytes; with chains of certificates some more."""

JWT_KEYS_MAX: Final = 100
"""Keys of an identity provider: two or three at a time; each is loaded once in a fetch."""

JWT_RSA_BITS_MIN: Final = 2_048
"""Shorter keys can be broken."""

JWT_RSA_BITS_MAX: Final = 8_192
"""A signature of a longer key would hold the loop up for a millisecond."""

JWT_FETCH_SECONDS: Final = 5.0
"""The time of a fetch of keys: a client gives a log-in 3 s, and comes again after it."""

JWT_KEYS_SECONDS: Final = 3_600.0
"""Between two fetches of keys: providers announce a key hours before they sign with it."""

JWT_UNKNOWN_KEY_SECONDS: Final = 60.0
"""Between two fetches for tokens whose key is not known, and after one that failed: a sender of
such tokens makes a node ask its provider once a minute at most."""

JWT_WAITING_MAX: Final = 1_024
"""Log-ins that wait for a fetch of keys; one more is refused as overloaded."""

JWT_TOKEN_BYTES_MAX: Final = 4_096
"""The longest token: what a client's proof may have."""

JWT_LEEWAY_MS: Final = 60_000
"""Clocks of a node and of the provider may be apart by this much."""

JWT_VERIFIED_MAX: Final = 10_000
"""Tokens whose signature is remembered: one for each connection that a node is likely to have."""

JWT_USERS_MAX: Final = 10_000
"""Users of tokens that are remembered, the last that came, for their shares of what they own."""

TICKET_MS: Final = 60_000
"""The time of a ticket of an http port: it is used at once; the clocks of nodes may be apart by as
much."""

SHARE_PARTS: Final = 2
"""A user may have one of so many parts of a pool by default: no one user locks all others out."""

RESERVE_PARTS: Final = 100
RESERVE_MIN: Final = 16
"""Part of a pool (1 %, no less than this) that is left to operators: enough for a few people and
their scripts to log in, look, and end sessions while all else is taken."""

STORED_LOOK_SECONDS: Final = 1.0
"""Bytes of a user's queues are added up this often: a millisecond for 10 000 queues."""

RIGHTS_KNOWN_MAX: Final = 1_024
"""Answers remembered per user, of permission and queue: queue names come from clients."""

HANDSHAKES_MAX: Final = 512
"""Accepted sockets that are no connection yet (a TLS handshake is under way); beyond it the oldest
is cut, as with connections without a hello. Several backlogs: plain ones need a turn or two."""

# --- publishers that are slowed -------------------------------------------------------------------

BACKLOG_MIN: Final = 5_000
"""Ready messages of a queue from which on the rate of its consumers is looked at: a moment's work
for those that matter here."""

SLOWED_MESSAGES_MIN: Final = 50
"""Messages of a publish from which on its confirm may wait: a program that publishes one by one
fills no queue, and would wait for each."""

STREAM_RATE_MIN: Final = 1_000
"""Acked messages a second from which on a queue's publishers are slowed where it falls behind: with
fewer it is one of jobs, which wait there by intent, and whose publishers would wait for nothing."""

BEHIND_SECONDS: Final = 0.1
"""A queue is behind where more is ready than its consumers take in this time."""

RATE_SECONDS: Final = 0.25
"""The rate of its consumers is measured over this time: five looks of the lock clock."""

SLOWED_SECONDS_MAX: Final = 0.25
"""A confirm waits no longer than this: far below any time-out of a call, and enough that eight
publishers with a thousand messages on their way keep to 32,000 a second."""

# --- requests ------------------------------------------------------------------------------------

GET_WAIT_MS_MAX: Final = 60_000
"""A waiting get is answered with nothing after this; the client asks again."""

GETS_WAITING_MAX: Final = 10_000
"""Gets that wait for a message on one node; one more is answered with nothing at once."""

RENEWED_IN_A_PIECE: Final = 128
"""Ranges renewed in one piece of a renewal, 3 ms where all are apart; the others get their turns in
between. One with more ranges of a consumer, or more consumers, does not wait for the lease."""

RENEWALS_WAITING_MAX: Final = 10_000
"""Renewals that wait for an evaluation under way, on one node; one more is answered `not_now`."""

RENEWAL_WAIT_SECONDS: Final = 1.0
"""A renewal waits this long for a lease or an evaluation, then it is answered `not_now`."""

READS_WAITING_MAX: Final = 10_000
"""Requests that wait for the proof that this node still leads; one more is answered `not_now`."""

READ_WAIT_SECONDS: Final = 1.0
"""They wait this long: a leader that no majority answers for a second leads no more."""

LIST_BYTES_MAX: Final = 768 * KIB
"""Packed answer to a query; below the protocol's 1 MiB header. A list of more queues is answered
without their specs and counters, and refused where that is too long still."""

LIST_PIECE: Final = 200
"""Sessions or users in one piece of an answer: about a millisecond."""

PEEK_BYTES_MAX: Final = 4 * MIB
"""Bodies in one answer to a peek."""

# --- pinned views ---------------------------------------------------------------------------------

PINS_MAX: Final = 64
"""Pinned views of one node, of which one user may have half: each may come to cost as much memory
as the state that it keeps, and bodies on the disk."""

PINNED_MESSAGES_MAX: Final = 20_000_000
"""Messages in queues that pinned views had to copy or were read of, together; beyond it the oldest
pin ends. At 10 to 150 bytes for each, where nothing is shared with the live state any more."""

PINS_WAITING_MAX: Final = 256
"""Pins that wait for entries to be applied; one more is answered at once."""

PIN_WAIT_SECONDS: Final = 2.0
"""A pin waits this long for the entries that its reader knows of: a follower learns of a commit
within a heartbeat. One that is further behind is no source."""

PIN_RANGES_MAX: Final = 1_000
"""Ranges that a queue is cut into: tasks of a scan."""

FIND_LOOKED_MESSAGES: Final = 500
"""Messages that one find with conditions looks at, as a page of a view does."""

PAGE_HEADERS_MESSAGES: Final = 500
"""Messages of one page that are looked at where headers are named: three milliseconds."""

COPY_PIECE_BYTES: Final = 256 * KIB
"""Bytes of one piece of a whole view, but for an entry that is longer: what the journal reads of a
snapshot at a time."""

COPY_BYTES_PER_S: Final = 32 * MIB
"""Rate at which whole views of one node are read, by all readers together: a quarter of a link of
1 Gbit/s, and a fraction of a disk, so that the log goes on beside a backup."""

# --- digests of whole states ---------------------------------------------------------------------

DIGEST_MS: Final = 1_800_000
"""Cluster time between two digests of the whole state: the first entry of each half hour names its
index, on all members alike, so this belongs to the version of the cluster (`words/versions.py`)."""

DIGEST_LATE_MS: Final = 5_000
"""An idle leader proposes an entry this long after a digest is due: no other entry will name it."""

DIGEST_APART_SECONDS: Final = 20.0
"""Between the beginnings of two members: a state of two million messages is hashed in that time."""

DIGEST_SLICE_SECONDS: Final = 0.002
"""Hashed at a time, once in a period of the lock clock: 4 % of a core while it lasts, and no client
waits for longer."""

DIGEST_STEPS_MAX: Final = 256
"""Steps of one slice, for a stopwatch that stands still."""

DIGEST_MESSAGES_MAX: Final = 5_000_000
"""Messages in blocks that have changed or left since the view was made, which it keeps for itself;
beyond it the digest is given up. A quarter of what pinned views may cost."""

DIGEST_COST_LOOKS: Final = 20
"""Looks, of which there are twenty a second, between two at that: one at ten million messages takes
half a millisecond."""

# --- redrive, move, durable consumers -------------------------------------------------------------

REDRIVE_MESSAGES: Final = 500
"""Messages that one step of a redrive looks at: a few milliseconds to choose and to apply."""

REDRIVE_HEADERS_MESSAGES: Final = 100
"""The same where the filter names headers, for each message may mean a read of the log."""

REDRIVE_LOOK_MESSAGES: Final = 2_000
"""Messages that all redrives and dry runs together look at in one look of the lock clock."""

REDRIVE_RATE_SECONDS: Final = 0.5
"""A redrive with a rate moves what this time allows in one step: ten looks of the lock clock, so
that waiting for a look slows it by a tenth at most."""

REDRIVE_PAUSED_SECONDS: Final = 1.0
"""A redrive whose target is full or missing is tried again after this."""

DRY_RUNS_MAX: Final = 16
"""Dry runs under way on one node; one more is answered `overloaded`."""

DEAD_LETTER_GROUPS_MAX: Final = 200
"""Groups of dead letters in one answer, some 700 bytes each; the rest is one group of others."""

MOVE_MESSAGES: Final = 1_000
"""Messages that one step of a move touches; a longer move takes several."""

# --- the node ------------------------------------------------------------------------------------

READY_LAG_ENTRIES: Final = 1_000
"""A node this far behind what it knows to be committed is not ready."""

HAND_OVER_SECONDS: Final = 3.0
"""A leader that stops waits this long for another one: longer than a transfer takes to fail."""

STOP_SECONDS: Final = 5.0
"""An orderly stop waits this long for connections to take their last frames."""

LEADER_WAIT_SECONDS: Final = 0.1
"""A client that comes while no leader is known waits this long for its answer: an election takes a
few round trips, or 0.6 to 1 s, and the answer then spares it another search."""

LEADER_WAITING_MAX: Final = 1_000
"""Clients that wait for that; one more is answered at once."""

RETRY_LEADERLESS_MS: Final = 20
"""Asked of a client that was answered without a leader, after that time."""

TIMER_SECONDS_MIN: Final = 0.001
"""Shortest timer: uvloop fires shorter ones at once, and the loop would spin."""

DESCRIPTORS_RESERVED: Final = 512
"""Descriptors that clients never get: the journal's files, peers, http, and one backlog."""

# --- the audit log -------------------------------------------------------------------------------

AUDIT_TEXT_CHARACTERS: Final = 200
"""Of a text in a note: it stands in the replicated log, and in a line for people."""

AUDIT_KEYS: Final = 40
"""Of a map in a note: more than a queue has options."""

AUDIT_DEPTH: Final = 2
"""Maps within a map of a note: the headers in the filter of a redrive."""

AUDIT_LINES_MAX: Final = 200
"""Lines of one answer: well below a megabyte."""

AUDIT_TIME_SECONDS_MAX: Final = 253_370_764_800
"""The year 9999, in seconds since 1970: the last that a date can name."""

AUDIT_READS_MAX: Final = 4
"""Reads of the audit log under way: each may read all its files, off the event loop."""

SESSION_SHOWN_BYTES: Final = 4
"""Bytes of a session's id in views: enough to tell two apart, of 16 that it takes to resume it."""

USERS_PAGE_BYTES: Final = 64 << 10
"""Bytes of a page of users, but for its last one, of 16 KiB at most: a millisecond to pack."""
