"""The tables of `docs/protocol.md` and `docs/protocol.json`, from the registry of `fifo.wire`.

Owns what can be generated: types, defaults and order of the fields, codes, limits, columns. The
words for people stand on the page alone, from where the JSON file takes them.
`python -m tests.wire.protocol_tables` writes both anew; a test says when that is needed.
"""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

from fifo.wire import VERSION_MAX, VERSION_MIN, Code, columns, handshake, limits
from fifo.wire.errors import RETRYABLE
from fifo.wire.fields import NAMES, U16_MAX, U63_MAX, Check
from fifo.wire.messages import REGISTRY, Message

PAGE: Final = Path(__file__).parents[2] / "docs" / "protocol.md"
FILE: Final = PAGE.with_suffix(".json")

TYPES: Final = {
    "number": f"integer 0..{U63_MAX}",
    "positive": f"integer 1..{U63_MAX}",
    "duration": f"integer 0..{limits.DURATION_MS_MAX}",
    "name": f"text 1..{limits.QUEUE_NAME_BYTES_MAX}",
    "ranges": f"list {limits.RANGES_MAX} of token range",
    "settled ranges": f"list {limits.SETTLE_RANGES_MAX} of token range",
    "columns": f"list 64 of [integer 0..{U16_MAX}, integer 0..{limits.FRAME_BYTES_MAX}]",
    "runs": f"list {U16_MAX} of [positive, number, number, number, number]",
    "dead letters": f"list {U16_MAX} of [number, map]",
    "nodes": "list 64 of [name, text 0..255]",
    "error": "[text 0..4096, text 0..4096, bool, any or nil?]",
    "repeats": "list 10000 of [integer 0..10000, integer 1..10000, positive, positive]",
}
"""Types with a name of their own; the later ones are made of the earlier ones."""


COLUMNS_IN: Final = {
    "publish": columns.PUBLISH_TAGS,
    "across": columns.ACROSS_TAGS,
    "deliver": columns.DELIVER_TAGS,
}
"""The tags of each frame with columns."""


def type_of(check: Check) -> str:
    """Return what a field accepts in the notation of the page, with the names of `TYPES`."""
    found = NAMES[check]
    for name, definition in TYPES.items():
        found = re.sub(rf"(?<![\w.-]){re.escape(definition)}(?!\d)", name, found)
    return found


def default_of(default: Any) -> str:
    """Return the default of a field as the page writes it."""
    if default is MISSING:
        return "required"
    written = {"None": "nil", "()": "`[]`", "''": '`""`', "b''": "empty"}
    return written.get(repr(default), str(default).lower())


def tables(page: str) -> str:
    """Return the page with its tables of fields as the registry has them; texts stay."""
    for cls in REGISTRY.values():
        page = _with_table(page, cls)
    return page


def _with_table(page: str, cls: type[Message]) -> str:
    start, end = _place(page, cls)
    part = page[start:end]
    known = {row[0]: row[3] for row in _rows(part)}
    checks = dict(cls._CHECKS)
    lines = [
        " ".join(
            f"| {field.name} | {type_of(checks[field.name])} | {default_of(field.default)} |"
            f" {known.get(field.name, '')} |".split()
        )
        for field in fields(cls)
    ]
    if not lines:
        return page
    table = "\n".join(["| field | type | default | |", "|--|--|--|--|", *lines, ""])
    found = re.search(r"^\| field \|.*\n\|--.*\n(\|.*\n)*", part, re.MULTILINE)
    assert found, f"{cls.__name__} has no table on the page: write its heading and rows"
    part = part[: found.start()] + table + part[found.end() :]
    return page[:start] + part + page[end:]


def _place(page: str, cls: type[Message]) -> tuple[int, int]:
    """Find the part of the page about a message."""
    heading = f"### {cls.TYPE} {cls.__name__}\n"
    assert heading in page, f"the page lacks {heading!r}"
    start = page.index(heading) + len(heading)
    end = re.search(r"^##", page[start:], re.MULTILINE)
    assert end is not None
    return start, start + end.start()


def _rows(part: str) -> list[list[str]]:
    lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def as_json(page: str) -> str:
    """Return the machine-readable protocol; `page` gives it the texts for people."""
    found = {
        "versions": [VERSION_MIN, VERSION_MAX],
        "types": {**TYPES, "token range": "[positive, positive]"},
        "messages": [_message(page, cls) for cls in REGISTRY.values()],
        "columns": [
            {
                "tag": tag,
                "bytes": columns._WIDTH.get(tag, columns._QUEUE_WIDTH.get(tag)),
                "per": "queue" if tag in columns._QUEUE_WIDTH else "message",
                "in": [name for name, tags in COLUMNS_IN.items() if tag in tags],
            }
            for tag in sorted(frozenset().union(*COLUMNS_IN.values()))
        ],
        "error_codes": [{"code": code, "retryable": code in RETRYABLE} for code in Code],
        "limits": bounds(),
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _message(page: str, cls: type[Message]) -> dict[str, Any]:
    start, end = _place(page, cls)
    part = page[start:end]
    texts = {row[0]: row[3] for row in _rows(part)}
    about = " ".join(re.split(r"^\| ", part, flags=re.MULTILINE)[0].split())
    sender = re.match(r"(C and N|C|N)\b", about)
    assert sender, f"the page does not say who sends {cls.__name__}"
    checks = dict(cls._CHECKS)
    return {
        "type": cls.TYPE,
        "name": cls.__name__,
        "from": {"C": ["client"], "N": ["node"]}.get(sender[0], ["client", "node"]),
        "text": about[sender.end() :].lstrip(",. "),
        "fields": [
            {
                "name": field.name,
                "type": type_of(checks[field.name]),
                "required": field.default is MISSING,
                "default": None if field.default is MISSING else _plain(field.default),
                "text": texts.get(field.name, ""),
            }
            for field in fields(cls)
        ],
    }


def _plain(default: Any) -> Any:
    return "" if default == b"" else default


def bounds() -> dict[str, int]:
    """Return every limit of the protocol by name."""
    found = {
        name: value
        for module in (limits, handshake)
        for name, value in vars(module).items()
        if name.endswith(("_MAX", "HEARTBEAT_MS")) and isinstance(value, int)
    }
    del found["VERSION_MAX"]
    return found


if __name__ == "__main__":
    written = tables(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(written, encoding="utf-8")
    FILE.write_text(as_json(written), encoding="utf-8")
