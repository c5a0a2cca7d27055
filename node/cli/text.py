"""Text forms of durations, sizes, rates, counts and headers: parsing and formatting.

Pure: no I/O. Must not know the client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from fifo.words.durations import UNITS_MS
from node.cli.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECONDS: Final = {unit: ms / 1000 for unit, ms in UNITS_MS.items()} | {"min": 60.0}
_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|min|s|m|h|d)")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_DURATION_CHARS_MAX: Final = 32


def messages(count: int) -> str:
    """A count of messages in words: ``1 message``, ``2 messages``."""
    return f"{count} message{'' if count == 1 else 's'}"


def duration(text: str) -> float:
    """Parse ``30s``, ``500ms``, ``1h30m`` or a bare number of seconds; returns seconds."""
    cleaned = text.strip().lower()
    if len(cleaned) > _DURATION_CHARS_MAX:
        raise UsageProblem(f"{cleaned[:20]!r}... is not a duration; write it as in 30s or 1h30m")
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", cleaned):
        return float(cleaned)
    if not cleaned or _DURATION_PART.sub("", cleaned):
        raise UsageProblem(f"{text!r} is not a duration; write it as in 500ms, 30s, 5m or 1h30m")
    return sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(cleaned))


def optional_duration(text: str | None) -> float | None:
    """Parse a duration; None stays None."""
    return None if text is None else duration(text)


def count(text: str) -> int:
    """Parse a whole number."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text.strip()):
        raise UsageProblem(f"{text!r} is not a whole number")
    return int(text)


def size(text: str) -> int:
    """Parse ``1024``, ``10MB`` or ``64MiB``; returns bytes."""
    match = _SIZE.fullmatch(text.strip())
    factor = None if match is None else _BYTES.get(match.group(2).lower())
    if match is None or factor is None:
        raise UsageProblem(f"{text!r} is not a size; write it as in 4096, 10MB or 64MiB")
    return int(float(match.group(1)) * factor)


def rate(text: str) -> float:
    """Parse ``100/s``, ``6/m`` or a bare number; returns messages per second."""
    number, slash, unit = text.strip().partition("/")
    per = _SECONDS.get(unit.strip()) if slash else 1.0
    if per is None or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number.strip()):
        raise UsageProblem(f"{text!r} is not a rate; write it as in 100/s")
    return float(number) / per


def headers(pairs: Iterable[str]) -> dict[str, str]:
    """Parse headers written as ``name=value``; the value may contain equal signs."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageProblem(f"--header {pair!r} is not a header; write it as name=value")
        found[name] = value
    return found


def bytes_text(count: int) -> str:
    """Format bytes: ``1536`` as ``1.5 KiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def undecided_text(nodes: Iterable[Mapping[str, Any]]) -> str | None:
    """The fact and the fix where the states of its members differ and none is known to be right;
    None where that is not so."""
    for node in nodes:
        if node.get("undecided"):
            return (
                f"the states of the members differ since entry {node['differs_index']}"
                " and none is known to be right, so the cluster accepts nothing: stop every node"
                " and restore the newest good backup, or recover those whose state is not trusted"
                " and restart the others"
            )
    return None


def alarm_text(alarm: Mapping[str, Any]) -> str:
    """Format an alarm of a node: what is short, how much there is, and the threshold."""
    measured, threshold = bytes_text(alarm["bytes"]), bytes_text(alarm["threshold_bytes"])
    match alarm["alarm"]:
        case "disk_low":
            return f"its disk is low, {measured} free of at least {threshold} (disk_low_bytes)"
        case "memory_high":
            return (
                f"it holds {measured} for clients that do not read,"
                f" at most {threshold} (memory_high_bytes)"
            )
        case "descriptors_low":
            return "it has no descriptor left for another connection (LimitNOFILE, ulimit -n)"
        case other:
            return f"{other}: {measured}, threshold {threshold}"


def seconds_text(seconds: float) -> str:
    """Format a duration in at most two units: ``820 ms``, ``12.3 s``, ``3 m 20 s``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that a terminal obeys, or does not show: controls, bidirectional marks, surrogates."""


def printable(text: str) -> str:
    """A text on one line, with escapes in place of what a terminal would obey or hide."""
    return UNPRINTABLE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def shortened(text: str, chars_max: int) -> str:
    """Fit a text into a table cell: printable, truncated with an ellipsis."""
    line = printable(text[: chars_max + 1])
    return line if len(line) <= chars_max else line[: chars_max - 1] + "\N{HORIZONTAL ELLIPSIS}"
