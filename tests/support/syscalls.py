"""A trace that strace wrote of a process, as a sequence of reads, writes and syncs with bytes.

Owns strace's command line and its notation. Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

READS = frozenset({"read", "readv", "recvfrom", "recvmsg"})
WRITES = frozenset({"write", "writev", "sendto", "sendmsg", "pwritev", "pwritev2", "pwrite64"})
SYNCS = frozenset({"fdatasync", "fsync"})

STRING_BYTES_MAX = 1 << 22
"""Larger than anything that is written at once; strace would cut it without an error."""

_CALL = re.compile(r"(\d+) +(\w+)\((\d+)<(\w+:\[[^\]]*\]|[^>]*)>(.*)")
_PATH = re.compile(r"(?:\\x[0-9a-f]{2})+")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)")
_RESULT = re.compile(r"\) += (-?\d+)")
_STRING = re.compile(r'(?<!msg_name=)"((?:\\x[0-9a-f]{2})*)"')


@cache
def why_not() -> str | None:
    """Why no process can be traced here, or None."""
    return None if shutil.which("strace") else "strace is not installed"


def traced(output: Path, *command: str) -> list[str]:
    """A command that runs another one, with its reads, writes and syncs recorded in a file."""
    names = ",".join(sorted(READS | WRITES | SYNCS))
    return [
        *("strace", "-f", "-yy", "-xx", "-s", str(STRING_BYTES_MAX)),
        *("-e", f"trace={names}", "-e", "signal=none", "-o", str(output), *command),
    ]


@dataclass(slots=True)
class Call:
    """A system call on a file or socket. `data` is what it moved; `result` as it returned."""

    name: str
    target: str
    data: bytes = b""
    result: int = -1


def events(lines: Iterable[str]) -> Iterator[tuple[str, Call]]:
    """("begins" or "returns", call), in the order in which it happened in the process."""
    under_way: dict[str, tuple[Call, str]] = {}
    for line in lines:
        if found := _CALL.match(line):
            thread, name, _, target, rest = found.groups()
            call = Call(name, _plain(target))
            if "<unfinished ...>" in rest:
                # A write's bytes are read before it is interrupted, a read's come with its end.
                call.data = _bytes(rest) if name in WRITES else b""
                under_way[thread] = call, rest
                yield "begins", call
                continue
        elif found := _RESUMED.match(line):
            thread, name, rest = found.groups()
            if thread not in under_way:
                continue
            call, before = under_way.pop(thread)
            rest = before + rest
        else:
            continue
        result = _RESULT.search(rest, max(0, len(rest) - 200))
        call.result = int(result[1]) if result else -1
        call.data = _bytes(rest)[: max(0, call.result)] if call.name not in SYNCS else b""
        if found.re is _CALL:
            yield "begins", call
        yield "returns", call


def _plain(target: str) -> str:
    """A path is given in hex, with its device behind it; a socket in words."""
    if found := _PATH.match(target):
        return bytes.fromhex(found[0].replace("\\x", "")).decode(errors="replace")
    return target


def _bytes(rest: str) -> bytes:
    """All strings of a call, end to end."""
    return bytes.fromhex("".join(_STRING.findall(rest)).replace("\\x", ""))
