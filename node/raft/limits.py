"""Every limit of node/raft: a name, a unit, a reason. Nothing else, and it knows nobody.

The journal's limits come first, the node's and the transport's follow under their own heading.
What an operator may change is a field of a configuration class and has its default from here.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- journal -------------------------------------------------------------------------------------

SEGMENT_BYTES: Final = 64 * MIB
"""A segment is closed when the next record would take it past this. Small enough that dropping
whole segments frees space in time, large enough that creating one (two syncs) is rare."""

SEGMENT_BYTES_MIN: Final = 512
"""Smaller segments would hold little but their header; tests use small ones."""

SEGMENT_BYTES_MAX: Final = 1024 * MIB
"""Positions inside a segment are kept in 32 bits per entry; the log itself has 64-bit positions."""

COMMAND_BYTES_MAX: Final = 8 * MIB
"""The largest command that one record may carry: four times the largest entry (2 MiB), and a bound
on what a reader allocates for a length it finds on disk."""

ROOM_BYTES: Final = 1 * MIB
"""Zeros that a small group takes along: one write in hundreds is longer by a millisecond or two,
and little of the disk waits unused."""

ROOM_GROUP_BYTES: Final = 32 * KIB
"""Larger groups take no zeros along: what a sync saves then is less than writing twice costs."""

CACHE_BYTES: Final = 64 * MIB
"""Recent commands kept in memory, so that replication and delivery seldom read the disk."""

REPLAY_CHUNK_BYTES: Final = 4 * MIB
"""Read size while opening a journal: large enough to be sequential, small enough to bound memory
at a chunk and one record."""

RUN_BYTES: Final = 1 * MIB
"""Entries that follow each other are read in pieces of this size: a thousand small ones at once,
and a piece that a disk returns in a few milliseconds."""

FETCH_BYTES: Final = 8 * MIB
"""Entries read beside the loop in one flight, for all who wait for some: that much is in memory at
once beyond the cache's bound."""

FETCH_ASKER_BYTES: Final = 2 * MIB
"""Of those for one of them: an entry of usual size whose messages were published in one batch."""

FETCH_AHEAD_BYTES: Final = 2 * MIB
"""What follows in the log and is read along: who reads a deep queue in order has the next two
thousand messages of usual size in memory while it takes these."""

FETCH_GROUPS_MAX: Final = 4_096
"""Messages that are looked through for what to read ahead for one of them: a few milliseconds."""

FETCH_GAP_BYTES: Final = 64 * KIB
"""What lies between two entries is read along up to this size: it costs less than a second read."""

JOIN_BYTES: Final = 4 * KIB
"""Commands that have no more than this on average are copied end to end before a file or a socket
gets them: a buffer for each costs more than to copy it."""

WRITE_PARTS_MAX: Final = 512
"""Buffers per writev; below IOV_MAX (1024 on Linux)."""

NODE_NAME_BYTES_MAX: Final = 255
"""Node names and votes are stored with a one-byte length."""

OPEN_SEGMENTS_MAX: Final = 64
"""Descriptors kept on segments: 4 GiB of log read without opening a file anew."""

SNAPSHOT_WRITE_BYTES: Final = 256 * KIB
"""Bytes of a snapshot or kept file gathered before a write: few calls, and each well below a
millisecond of copying into the page cache."""

STATE_PIECE_BYTES: Final = 256 * KIB
"""The state of a snapshot is cut into records of this size: what has to be read and checked to
return any byte of it."""

PLACES_PER_RECORD: Final = 4096
"""Entries whose places go into one record of a snapshot or kept file (112 KiB)."""

STATE_BYTES_PER_PLACE: Final = 16
"""While the state is written, one place is written for each of these bytes. A live body has more
state than that, so that all places are written when the state is, and none at the end."""

LIVE_FRACTION_MIN: Final = 0.25
"""A file of which less than this part is live is compacted: copying a quarter to free the rest
writes at most a third of what it frees."""

SMALL_KEPT_FILES_MAX: Final = 8
"""That many kept files below a quarter of a segment are joined into one, so that their number
stays small and a body is copied for that reason seldom."""

RELEASE_BYTES: Final = 4 * MIB
"""What `release` does at once before it leaves the rest to `compact_step`: a few milliseconds."""

PLACE_COST_BYTES: Final = 256
"""What the place of an entry counts for in a budget of bytes, where many are gone through."""

ENTRY_COST_BYTES: Final = 2 * KIB
"""What an entry counts for beside its own bytes where many are read at once: the time of small
ones."""

UNLINK_COST_BYTES: Final = 1 * MIB
"""What removing a file counts for in a budget of bytes: a file system frees 64 MiB in about the
time that it takes to copy this."""

SYNC_WEIGHT: Final = 0.2
"""Share of the newest sync in the recent mean: a single slow one is forgotten after a few."""

# --- node ----------------------------------------------------------------------------------------

ENTRY_BYTES_MAX: Final = 2 * MIB
"""One submitted entry. Below the batch size, so that the library never cuts an entry in chunks."""

BATCH_BYTES: Final = 4 * MIB
"""Entries gathered into one append-entries frame; an entry over the rest may still join it."""

BATCH_ENTRIES_MAX: Final = 10_000
"""Entries in one frame: keeps the frame's header far below its cap."""

WINDOW_BYTES: Final = 16 * MIB
"""Sent and not acknowledged, per peer. A slower peer gets heartbeats beyond it, not memory."""

SEND_BYTES_PER_TURN: Final = 4 * MIB
SEND_ENTRIES_PER_TURN: Final = 1_000
"""Entries handed to one peer's connection in one turn, so that nobody else waits for a peer that
catches up; no more of them are read from the disk for it at once."""

UNCOMMITTED_BYTES_MAX: Final = 32 * MIB
"""Appended on the leader and not committed; what is submitted beyond it waits in the queue."""

QUEUE_COMMANDS_MAX: Final = 10_000
"""Submitted and not appended; one more is refused as QUEUE_FULL."""

QUEUE_BYTES_MAX: Final = 64 * MIB
"""Bytes of the same queue."""

APPLY_BYTES_PER_TURN: Final = 8 * MIB
"""A node that catches up applies this much, then lets the loop serve heartbeats again."""

APPLY_ENTRIES_PER_TURN: Final = 2_000
"""The same bound for small entries."""

APPLY_SECONDS_PER_TURN: Final = 0.02
"""The same bound for costly ones: none is begun in this turn after so long. A fifth of a heartbeat,
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

PRE_VOTE_YIELD_SECONDS: Final = 0.05
"""A node that grants a pre-vote puts its own candidacy off by this. No more, or a node that can
send but not receive would keep all others from standing."""

LEADER_GONE_SECONDS: Final = 0.03
"""A follower whose connection to the leader ended stands one to two of these after the minimum
timeout: by then the others, who heard the leader a little later by clocks of their own, are free to
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
together: nobody waits for it, unlike for its acknowledgements."""

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

# --- snapshots -----------------------------------------------------------------------------------

SNAPSHOT_BYTES: Final = 256 * MIB
"""Journal written since the last snapshot that makes the next one due: a restart reads no more
than about twice this, and a snapshot is a small part of what was written."""

SNAPSHOT_LOOK_SECONDS: Final = 60.0
"""Between two looks whether the disk holds more than the log's growth gives back: bodies that were
settled while little else was written."""

SNAPSHOT_REST_SECONDS: Final = 3600.0
"""Between two snapshots for that reason: one an hour is no load where all of them live."""

SNAPSHOT_REST_SECONDS_SHORT: Final = 300.0
"""The same where less is free than they could give back: who drains a queue to make room should not
wait for hours."""

SNAPSHOT_BYTES_MIN: Final = 1 * MIB
"""What an operator may set: below it a node would do little but take snapshots."""

SNAPSHOT_CHUNK_BYTES: Final = 1 * MIB
"""State or entries in one frame to a peer: a few milliseconds on either side."""

SNAPSHOT_ENTRIES_PER_FRAME: Final = 1_000
"""Kept entries in one frame: each is read, checked and written by itself."""

SNAPSHOT_ENTRY_OVERHEAD_BYTES: Final = 64
"""What an entry counts beside its bytes towards a frame and the window."""

SNAPSHOT_SEND_BYTES_PER_TURN: Final = 2 * MIB
"""Handed to one peer's connection in one turn, so that nobody else waits for it."""

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
"""What cleaning up may cost in one step, in the bytes that its parts count for: a millisecond."""

# --- transport -----------------------------------------------------------------------------------

HEADER_BYTES_MAX: Final = 1 * MIB
"""Header of a frame of an authenticated peer."""

FRAME_BYTES_MAX: Final = 8 * MIB
"""A whole frame: a batch, one more entry, and slack."""

HANDSHAKE_BYTES_MAX: Final = 2 * KIB
"""A whole frame of a peer that has not proved who it is."""

HANDSHAKE_SECONDS: Final = 3.0
"""A connection that is not authenticated after this is closed."""

UNAUTHENTICATED_MAX: Final = 32
"""Connections in handshake; with one more, the oldest of them is closed."""

CONNECTION_SECONDS: Final = 4.0
"""A connection on which nothing arrived for this long is dead (at least the election timeout)."""

KEEPALIVE_SECONDS: Final = 1.0
"""Followers have nothing to tell each other; this frame shows that the connection lives."""

DIAL_SECONDS: Final = 2.0
"""A dial that has not connected after this is given up and tried again."""

DIAL_RETRY_SECONDS_MIN: Final = 0.05
"""First pause after a failed or broken dial; doubles up to the maximum."""

DIAL_RETRY_SECONDS_MAX: Final = 0.5
"""A peer that comes back is found again within this."""

LISTEN_BACKLOG: Final = 128
"""Connections that the kernel keeps for a port while a turn lasts; as many are accepted at once.
Who finds it full dials again."""

ACCEPT_RETRY_SECONDS: Final = 0.2
"""Pause of the listener after a failed accept (no descriptors left, aborted connection)."""

RECEIVE_BYTES: Final = 256 * KIB
"""Receive buffer per connection; a larger frame gets a buffer of its own while it arrives."""

UNSENT_BYTES_MAX: Final = 32 * MIB
"""A connection whose peer reads so slowly that this much waits to be sent is closed: the byte
window bounds entries, this bounds everything."""
