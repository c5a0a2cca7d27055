"""Every limit of node/raft: a name, a unit, a reason. Imports no other module.

What an operator may change is a field of a configuration class and has its default from here.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

BATCH_BYTES: Final = 4 * MIB
"""Entries gathered into one append-entries frame; an entry over the rest may still join it."""

WINDOW_BYTES: Final = 16 * MIB
"""Sent and not acknowledged, per peer. A slower peer gets heartbeats beyond it, not memory."""

SEND_BYTES_PER_TURN: Final = 4 * MIB

UNCOMMITTED_BYTES_MAX: Final = 32 * MIB
"""Appended on the leader and not committed; what is submitted beyond it waits in the queue."""

UNSYNCED_BYTES_MAX: Final = 64 * MIB
"""Appended and not on this node's own disk, committed or not: what a node whose disk hangs keeps in
memory. Beyond it a leader's submissions wait in the queue, and a follower takes no more entries;
one frame may go above it."""

HANG_REST_SECONDS: Final = 30.0
"""Between two hand-overs because of a hanging disk: where every disk is sick, the leadership must
not go round."""

YIELD_SECONDS: Final = 3_600.0
"""A leader that an operator had hand over lets the others stand first for this long: longer than
the maintenance that it was for, and no failover is slow for ever because of a forgotten one."""

YIELD_TIMEOUTS: Final = 5
"""Election timeouts that such a member waits beyond its own: the others have stood by then, some of
them twice. One that alone has all that is committed leads after all."""

QUEUE_COMMANDS_MAX: Final = 10_000
"""Submitted and not appended; one more is refused as QUEUE_FULL."""

QUEUE_BYTES_MAX: Final = 64 * MIB
"""Bytes of the same queue."""

APPLY_BYTES_PER_TURN: Final = 8 * MIB
"""A node that catches up applies this much, then lets the loop serve heartbeats again."""

APPLY_ENTRIES_PER_TURN: Final = 2_000
"""The same bound for small entries."""

APPLY_SECONDS_PER_TURN: Final = 0.02
"""The same bound for costly ones: none is begun in a turn after this time. A fifth of a heartbeat,
and half of what the costliest entry alone may take."""

SUBMIT_SECONDS: Final = 10.0
"""Every submit has its outcome after this time: UNKNOWN where nothing better is known."""

HEARTBEAT_SECONDS: Final = 0.1
"""A leader is heard at least this often."""

RAFT_MIN_TIMEOUT_SECONDS: Final = 0.6
"""No node stands for election, and none votes, sooner than this after it heard its leader."""

RAFT_MAX_TIMEOUT_SECONDS: Final = 1.0
"""Upper end of the random election timeout."""

LEASE_FRACTION: Final = 0.9
"""Part of the minimum timeout that a leader relies on: the rest covers differing clock rates."""

LEASE_SECONDS_MAX: Final = 0.54
"""A lease lasts no longer, whatever the timeouts are: the owner's log relies on this bound, by
which each later leader keeps what a former one may have promised, and configurations may differ."""

PRE_VOTE_YIELD_SECONDS: Final = 0.05
"""A node that grants a pre-vote puts its own candidacy off by this. No more, or a node that can
send but not receive would keep all others from standing."""

EARLY_REST_SECONDS: Final = 10.0
"""Between two elections for which a member does not wait, because its connection to the leader
ended: a network that breaks connections again and again must not change the leader each time."""

EARLY_RETRY_SECONDS: Final = 0.02
"""Such a member asks again after one to one and a half of these, until the minimum timeout: the
others see the same connections end, a little later."""

LEADER_GONE_SECONDS: Final = 0.03
"""A follower that may not stand early does so one to two of these after the minimum timeout: by
then the others, who heard the leader a little later by clocks of their own, are free to
answer, and who stands second sees that the first does."""

PRE_VOTE_RETRY_FRACTION: Final = 1 / 6
"""An unanswered pre-vote is asked again after one to two of these parts of the minimum timeout."""

RECOVER_ASK_SECONDS: Final = 0.5
"""A member that lost its journal asks again after this: longer than a hand-over takes."""

RECOVER_MEMBERS_MIN: Final = 3
"""A group that small has no majority without the member that recovers."""

COMMIT_NOTICE_SECONDS: Final = 0.02
"""Followers learn of a commit with the next entries, or at the latest after this."""

FOLLOW_SECONDS: Final = 0.005
"""A follower applies what is committed at the latest after this, and the entries of this time
together: no client waits for it, unlike for its acknowledgements."""

SLOW_SYNC_SECONDS: Final = 0.002
"""Recent mean above which syncs leave the loop's thread: a turn must not stand still for them."""

FAST_SYNC_SECONDS: Final = 0.001
"""Recent mean below which they come back: a hand-over to a thread costs about 0.1 ms."""

TURN_SECONDS_BUSY: Final = 0.02
"""Longest time between two turns of a leader."""

TURN_SECONDS_IDLE: Final = 0.05
"""Longest time between two turns of any other node."""

TURN_SECONDS_MIN: Final = 0.001
"""Shorter timers of uvloop fire at once, and the loop would spin."""

ROOM_REPORT_SECONDS: Final = 1.0
"""Between two reports of what a member has left: at 100 MB/s of publishes its leader hears of it
in a fraction of what the low mark leaves."""

ROOM_REPORT_BYTES: Final = 4 * MIB
"""A report is due sooner where the log has grown by this: a disk of 100 MB/s passes the low mark of
a small one within a fraction of a second, and its publishers have to hear of it in time."""

ROOM_REPORT_SECONDS_MAX: Final = 10.0
"""An older report does not count: a member that is gone must not stop the publishers of others."""

MARK_ENTRIES: Final = 1_024
"""Entries between two marks of the state, at multiples of this on every member: a replica that does
something else is found within so many."""

STATE_ASK_SECONDS: Final = 1.0
"""Between two questions of a member for the state of the others: its leader may be another one by
now, or have given up to send it."""

DOUBT_ASK_SECONDS: Final = 5.0
"""Between two questions of a leader whose members' states are all different: whether a member's
would be the same again takes as long as to apply what lies behind its oldest snapshot."""

DOUBT_ENTRIES_PER_STEP: Final = 64
"""Entries that are applied again in one step: some milliseconds."""

DOUBT_STEPS_PER_TURN: Final = 100
"""Most steps of it in one turn, where the clock does not move."""

MARKS_KEPT: Final = 64
"""Marks that a member keeps: one that is 65,536 entries behind is compared where it ends."""

DIGESTS_KEPT: Final = 4
"""Digests of whole states that a member keeps: the next leader compares those of two hours."""

CONNECTION_SECONDS: Final = 4.0
"""A connection on which nothing arrived for this long is dead (at least the election timeout)."""

# --- snapshots -----------------------------------------------------------------------------------

SNAPSHOT_BYTES: Final = 256 * MIB
"""Journal written since the last snapshot that makes the next one due: a restart reads no more
than about twice this, and a snapshot is a small part of what was written."""

TAKER_LOOK_SECONDS: Final = 0.1
"""Between two looks whether there is another reason for a snapshot than the log's growth. Those
change in seconds, and a look in every turn costs 2 % of a small one."""

SNAPSHOT_LOOK_SECONDS: Final = 60.0
"""Between two looks whether the disk holds more than the log's growth gives back: bodies that were
settled while little else was written."""

SNAPSHOT_REST_SECONDS: Final = 3600.0
"""Between two snapshots for that reason: one an hour is no load where all of them live."""

SNAPSHOT_REST_SECONDS_SHORT: Final = 300.0
"""The same where less is free than they could give back: who drains a queue to make room should not
wait for hours."""

SHORT_LOOK_SECONDS: Final = 1.0
"""Between two looks whether room is short."""

SHORT_BACK_PARTS: Final = 4
"""Room is short below a quarter more than the low mark, where the alarm ends too."""

SHORT_REST_SECONDS: Final = 10.0
"""Between two snapshots while room is short: an emptied queue takes messages within 30 s."""

SHORT_REST_SECONDS_GAIN: Final = 2.0
"""The same where a segment more is dead than the last one left."""

SHORT_REST_PARTS: Final = 4
"""And never before this many times the time that the last one took: a large state on a slow disk
must not be written all the time."""

SNAPSHOT_BYTES_MIN: Final = 1 * MIB
"""Lower bound of the setting: below it a node would do little but take snapshots."""

SNAPSHOT_CHUNK_BYTES: Final = 1 * MIB
"""State or entries in one frame to a peer: a few milliseconds on either side."""

SNAPSHOT_ENTRIES_PER_FRAME: Final = 1_000
"""Kept entries in one frame: each is read, checked and written separately."""

SNAPSHOT_ENTRY_OVERHEAD_BYTES: Final = 64
"""Overhead of an entry, added to its bytes in a frame and in the window."""

SNAPSHOT_SEND_BYTES_PER_TURN: Final = 2 * MIB
"""Handed to one peer's connection in one turn, so that no other peer waits for it."""

SNAPSHOT_ASK_SECONDS: Final = 1.0
"""A peer that has not answered for this long is asked anew what it has."""

SNAPSHOT_PIN_SECONDS: Final = 60.0
"""A snapshot stays on the disk for a peer that was heard this recently, so that a transfer goes on
after an interruption; a peer that is gone must not fill the disk."""

SNAPSHOT_RETRY_PARTS: Final = 4
"""After a snapshot that had to be given up, the next try is a quarter of the usual bytes later."""

SLICE_SECONDS: Final = 0.003
"""Work on snapshots in one turn: well below what a client or a heartbeat would notice."""

SLICE_STEPS: Final = 64
"""Steps of the same, for a clock that stands still in a turn."""

COMPACT_BYTES_PER_STEP: Final = 256 * KIB
"""Cost bound of one step of cleaning up, in the bytes that its parts count for: a millisecond."""

# --- members -------------------------------------------------------------------------------------

VOTERS_MAX: Final = 9
"""Voters of one cluster: as many as a configuration file may name. More copies cost each commit
more, and make a majority no safer than five do."""

CHANGES_KEPT: Final = 16
"""Changes of the members that have ended and are named in a configuration: more than are made
between two looks of one who waits for the end of theirs."""

# --- scrub and repairs ---------------------------------------------------------------------------

SCRUB_BYTES_PER_SECOND: Final = 4 * MIB
"""Read by the scrub: 350 GB a day, beside the hundreds of MB/s of a disk and 1 % of a core."""

SCRUB_FIRST_SECONDS: Final = 60.0
"""After a start, which reads the log itself: what comes up has more urgent things to read."""

SCRUB_REST_SECONDS: Final = 24 * 3600.0
"""Between two passes: bits rot in months."""

SCRUB_AGAIN_SECONDS: Final = 600.0
"""The same where a file is in doubt: it takes two snapshots until that is gone."""

REPAIR_ASK_SECONDS: Final = 1.0
"""A member that has not answered for this long does not have the entry, or is gone: the next one is
asked."""

REPAIR_SECONDS: Final = 30.0
"""An entry that is waited for, and that no member in reach has sent for this long, ends the node:
others may have it, and lead."""

REPAIRS_AT_ONCE: Final = 16
"""Entries that are asked for together: up to 2 MiB each."""

REPAIR_QUESTIONS_MAX: Final = 64
"""Questions of others that wait here; one that is left out is asked again."""

NOTE_BYTES_MAX: Final = 64 * KIB
"""A note of a member's owner for that of the leader: 4096 ids of 16 bytes."""

SYNCED_SECONDS: Final = 0.05
"""Between two words of a leader about what its own disk has. No disk is set back within it; a frame
for each commit would cost as much as the commit."""
