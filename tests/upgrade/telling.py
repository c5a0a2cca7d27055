"""Frames of peer protocol 5, which 0.1.0 does not know: `python -m tests.upgrade.telling`.

Owns the fixture of what members say to each other from version 2 on, until a release writes its own
by `maker.py`. What is there is never written again: clusters may have run what wrote it.
"""

from __future__ import annotations

import sys

from node.peers.frames import FORMATS, TOLD_TYPES, encode
from node.peers.handshake import TELLS
from tests.upgrade import written
from tests.upgrade.maker import FIXTURES

FOLDER = FIXTURES / "peer-5"


def files() -> dict[str, bytes]:
    """The files by name, as today's code writes them."""
    offer = written.message_of("snapshot_offer", FORMATS["snapshot_offer"][1])
    offer["members"] = b"of today"  # Of a cluster whose members have changed.
    return {
        "members": written.members(sorted(TOLD_TYPES)),
        "offer": b"".join(map(bytes, encode(offer))),
        "handshake": written.handshake(TELLS),
    }


def main() -> int:
    """Write those that are not there."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        if not (FOLDER / name).exists():
            (FOLDER / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
