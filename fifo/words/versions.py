"""The versions of all that programs of fifo write for each other, and what each turns on.

Owns the one table: a cluster has one version, the machine's, which `SetVersion` raises; its line
says which format of every part is used from then on, and which rules hold. What a program can read
and speak is wider: a range for each part. A rule that holds from a version on has a name here, and
asks `version >= NAME` where it holds. Must not know how any part is written: each room has the
number of its own format, and `tests/upgrade/test_table.py` holds them to this table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

FIRST: Final = 1
"""The version that every log begins with: a member that replays one from its beginning does what
those did that wrote it."""

MEMBERS_TELL: Final = 2
"""From here on members speak peer protocol 5, and refuse a member that does not say its ranges."""

MEMBERS_CHANGE: Final = 2
"""From here on configurations are entries: members are added, removed, replaced and moved."""

STATES_COMPARED: Final = 2
"""From here on members compare digests of their whole states each half hour of cluster time."""

KEY_RUNS: Final = 2
"""From here on a reservation may hold several messages of a key, where it asks for them; snapshots
have what is out of each key (format 14)."""

EVEN_SHARES: Final = 2
"""From here on a checkout divides what is ready among the consumers whose turn is still to come:
one delivery each, where all had a part of what was left until nothing was."""

NEWEST: Final = 2
"""The highest version that this program knows."""

Range: TypeAlias = tuple[int, int]
"""The lowest and the highest of one part that a program reads and speaks."""

Ranges: TypeAlias = Mapping[str, Range]
"""By part: `peer` (protocol between members), `entry`, `machine`, `snapshot`, `journal`, `client`
(protocol of clients)."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a cluster. `uses`: the format of each part; `release`: the first that knows it;
    `turns_on`: what holds from it on, for people."""

    number: int
    release: str
    uses: Mapping[str, int]
    turns_on: tuple[str, ...] = ()


VERSIONS: Final = (
    Version(FIRST, "0.1.0", {"peer": 4, "entry": 1, "machine": 1, "snapshot": 13, "journal": 2}),
    Version(
        MEMBERS_TELL,
        "0.2.0",
        {"peer": 5, "entry": 1, "machine": 2, "snapshot": 14, "journal": 2},
        (
            "peer protocol 5: members say what they can, and one of 0.1.0 is refused by a line",
            "members compare their whole states each half hour, and one that differs is replaced",
            "a reservation may hold runs of a key, of a key-ordered queue",
            "what becomes ready at once is one delivery for each consumer that has room",
            "members are added, removed, replaced and moved while the cluster runs (`fifo member`)",
        ),
    ),
)
"""Every version there is, in order."""

CAN: Final[Ranges] = {
    "peer": (4, 5),
    "entry": (1, 1),
    "machine": (FIRST, NEWEST),
    "snapshot": (13, 14),
    "journal": (1, 2),
    "client": (1, 1),
}
"""The ranges of this program."""

SILENT: Final[Ranges] = {
    "peer": (4, 4),
    "entry": (1, 1),
    "machine": (1, 1),
    "snapshot": (13, 13),
    "journal": (1, 2),
    "client": (1, 1),
}
"""The ranges of a member that does not say them: it is of 0.1.0."""

SILENT_RELEASE: Final = "0.1.0"


def version(number: int) -> Version:
    """The version of this number. Raises KeyError for one that this program does not know."""
    for one in VERSIONS:
        if one.number == number:
            return one
    raise KeyError(number)


def can(ranges: Ranges, wanted: Version) -> bool:
    """Whether a program of these ranges can run in a cluster of this version."""
    return all(
        part in ranges and ranges[part][0] <= used <= ranges[part][1]
        for part, used in wanted.uses.items()
    )


def newest_common(members: Collection[Ranges]) -> Version:
    """The newest version in which members of all these ranges can run; the first where none is."""
    common = [one for one in VERSIONS if all(can(ranges, one) for ranges in members)]
    return common[-1] if common else VERSIONS[0]
