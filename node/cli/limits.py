"""Bounds of the command line: timeouts, batch sizes, windows.

Owns constants only, each with its unit in its name and its reason below it.
"""

from __future__ import annotations

from typing import Final

CONNECT_TIMEOUT_S: Final = 5.0
"""Longer than an election (1 s) and a reconnect back-off together, short enough to watch."""

CALL_TIMEOUT_S: Final = 15.0
"""Time limit of a command's call; spans a change of leader and a slow disk."""

OBSERVE_TIMEOUT_S: Final = 1.0
"""Asking one node on the same machine or network for its status; it then counts as down."""

LOGIN_TIMEOUT_S: Final = 5.0
"""The same where a password has to be checked first, which may wait behind others."""

COMPLETION_TIMEOUT_S: Final = 1.0
"""A shell whose completion takes longer seems stuck; Python takes half a second of it to start."""

SWITCH_SECONDS: Final = 0.001
"""Switch interval of a node: the longest that a thread waits for the GIL."""

LEADER_WAIT_S: Final = 15.0
"""A fresh cluster elects in about 1 s; a loaded machine needs most of the rest to start Python."""

AGREE_WAIT_S: Final = 2.0
"""After the first leader is seen, how long the others may take to follow it."""

STOP_WAIT_S: Final = 10.0
"""A node closes its journal in milliseconds; one that takes longer is killed and reported."""

KILL_WAIT_S: Final = 5.0
"""SIGKILL takes effect once the kernel lets go of the disk."""

POLL_S: Final = 0.05
"""Interval of a poll: too short to notice, too long to load the machine."""

SUPERVISE_S: Final = 0.1
"""Interval at which the foreground start checks its nodes and the requests to start one."""

LOG_TAIL_BYTES: Final = 64 * 1024
"""Bytes at the end of a log that `cluster logs` prints without --all."""

PARENT_POLL_S: Final = 0.5
"""Where the kernel cannot tell a node of its parent's death, how often the node looks."""

PUBLISH_BATCH: Final = 500
"""Messages per publish_many of `fifo publish --lines`; about half a megabyte of 1 KB lines."""

PUBLISH_WINDOW: Final = 4
"""Batches under way at once: enough to keep the leader busy while one is being confirmed."""

PUBLISH_BATCH_BYTES: Final = 512 * 1024
"""A batch of long lines ends here, so that the window holds at most some 2 MiB of them."""

BODY_BYTES_MAX: Final = 1 << 20
"""Largest body that a node accepts; a larger file is refused before it is read whole."""

CONSUME_IDLE_S: Final = 1.0
"""Without --follow, `fifo consume` ends when no message came for this long."""

CONSUME_BATCH: Final = 500
"""Messages that `fifo consume` prints before it acks them in one frame."""

LIST_COUNT: Final = 100
"""Rows that locks, delayed, consumers and producers show in a table; --json prints all."""

WATCH_S: Final = 1.0
"""Interval of --watch: as often as a person reads, and a light load for the leader."""

CELL_CHARS_MAX: Final = 100
"""A body longer than this is cut in a table; --json prints it whole."""

BENCH_BODY_BYTES_MIN: Final = 16
"""A benchmark's body starts with a time stamp of 8 bytes."""

BENCH_START_WAIT_S: Final = 30.0
"""For the worker processes to start Python and connect."""

BENCH_DRAIN_S: Final = 10.0
"""After the publishers stop, how long consumers may take for the rest; outside the figures."""

BENCH_WARMUP_S: Final = 2.0
"""Warm-up, not measured: connections, first segments and branch caches settle in it."""

BENCH_PACE: Final = 1_000
"""Messages a second at which end-to-end latency is shown: far below what any machine takes."""

BENCH_PACE_MAX: Final = 1_000_000
"""A paced load above it is none."""

BENCH_PACED_S: Final = 5.0
"""The longest time of the paced measurement: 5,000 messages are enough for a 99th percentile."""

BENCH_PACE_STEP_S: Final = 0.001
"""A paced publisher sends what is due at most this often."""

BENCH_BATCHES: Final = 4
"""Batches per window of a benchmark: one is confirmed while the others are in flight."""

BENCH_REPORT_S: Final = 0.5
"""Interval of a worker's progress reports, which drive the progress line only."""

BENCH_CLIENTS_MAX: Final = 512
"""Clients in one worker process; more would measure the worker."""

REDRIVE_POLL_S: Final = 0.1
"""Interval of the polls of a running redrive: short enough to feel immediate."""

PROGRESS_S: Final = 2.0
"""Interval of the progress lines of a redrive, a move, a backup or a comparison."""

MOVE_MESSAGES: Final = 10_000
"""Messages per request of a move: what the machine moves in one step."""

CERTIFICATE_DAYS_MIN: Final = 21
"""A certificate that ends sooner is reported: three weeks span a holiday and a slow authority."""

LAG_ENTRIES: Final = 1_000
"""Entries that a follower may be behind: more is seconds of load, which it would have to fetch."""

ROOM_FACTOR: Final = 2
"""A disk with less than this many times the room that publishes need is soon too full."""

SLOW_SYNC_MS: Final = 50.0
"""A local disk syncs in a few milliseconds; every confirm waits for a majority of disks."""

CLOCKS_APART_S: Final = 2.0
"""Wall clocks kept by NTP agree to milliseconds; logs and ends of tokens tolerate this much."""

CONNECTIONS_FULL_SHARE: Final = 0.8
"""Share of the connections of a node above which a reconnection of all clients may not fit."""

DESCRIPTORS_GOOD: Final = 4_096
"""Below this a node has room for fewer connections than a few programs with pools open."""
BACKUP_RECONNECTS_MAX: Final = 5
"""Times that a connection is made again for one piece of a backup."""

BACKUP_WAIT_S: Final = 2.0
"""Before each: long enough for a node to be restarted, together within the lease of a view."""

COPY_LEASE_MS: Final = 120_000
"""Lease of the view that a backup or a comparison reads: spans all attempts for one piece."""

VERIFY_LOOK_S: Final = 0.1
"""Between two looks at the log, which say how fast it grows."""

VERIFY_AHEAD_S: Final = 0.3
"""The index at which states are compared is this far ahead of a log that grows: a round trip to
each node, with room. Doubled where it was past on one of them."""

VERIFY_AHEAD_MAX_S: Final = 1.2
"""The most of that: a node waits 2 s for an index."""

VERIFY_PINS_MAX: Final = 6
"""Attempts to have all nodes freeze at one index."""
