"""Every limit of node/peers: a name, a unit, a reason. Imports no other module.

What an operator may change is a field of a configuration class and has its default from here.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

BATCH_ENTRIES_MAX: Final = 10_000
"""Entries in one frame: keeps the frame's header far below its cap."""

ENTRY_BYTES_MAX: Final = 2 * MIB
"""A submitted entry. Below the batch size, so that the library never cuts an entry in chunks."""

HEADER_BYTES_MAX: Final = 1 * MIB
"""Header of a frame of an authenticated peer."""

FRAME_BYTES_MAX: Final = 8 * MIB
"""A whole frame: a batch, one more entry, and slack."""

HANDSHAKE_BYTES_MAX: Final = 2 * KIB
"""A whole frame of a peer that has not proved who it is."""

LABEL_BYTES_MAX: Final = 64
"""A release that a member says it is of."""

PARTS_MAX: Final = 32
"""Parts of which a member says its range; there are six."""

HANDSHAKE_SECONDS: Final = 3.0
"""A connection that is not authenticated after this is closed."""

UNAUTHENTICATED_MAX: Final = 32
"""Connections in handshake; with one more, the oldest of them is closed."""

KEEPALIVE_SECONDS: Final = 1.0
"""Followers have nothing to tell each other; this frame shows that the connection lives."""

DIAL_SECONDS: Final = 2.0
"""A dial that has not connected after this is given up and tried again."""

DIAL_RETRY_SECONDS_MIN: Final = 0.05
"""First pause after a failed or broken dial; doubles up to the maximum."""

DIAL_RETRY_SECONDS_MAX: Final = 0.5
"""A peer that comes back is found again within this."""

DIALING_SOCKET_RETRY_SECONDS: Final = 1.0
"""Pause before the socket for the next dial is made again, where the system had none."""

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

REFUSAL_LOG_SECONDS: Final = 60.0
"""Pause between two log lines about one stranger: an address, or a user at an address."""

REFUSAL_LINES_MAX: Final = 60
"""Strangers in this time about whom there is a line: enough to see an attack, and no way to fill a
disk with the log of it."""

REASON_BYTES_MAX: Final = 512
"""Of the reason why a member does not count: a line."""

ROWS_MAX: Final = 64
"""Members whose journals one member describes: more than any group has."""

FORMER_MAX: Final = 64
"""Journals that a member gave up, in such a description (`node/journal/passport.py`)."""

VERDICT_TWICE: Final = 5
"""The kind of a verdict that the connections themselves give (`node/raft/roll.py`)."""

DIAL_OTHERWISE_SECONDS: Final = 3.0
"""A member that should be dialed by the other one of a pair dials after this without a connection:
the other may not know where it is, or that it is a member."""

GUESTS_MAX: Final = 16
"""Connections of proven nodes that are no members: those that join, and those that were removed.
With one more, the oldest is closed."""

ADDRESS_BYTES_MAX: Final = 300
"""An address that a node says of itself: a host name has 253 bytes at most."""

CONFIGURATION_BYTES_MAX: Final = 256 * KIB
"""A configuration in a frame: nine members, and a tombstone for each that there ever was."""

ASK_SECONDS: Final = 5.0
"""A question that has no answer after this is given up."""
