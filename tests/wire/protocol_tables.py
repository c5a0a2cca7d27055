"""`docs/protocol.json`, and section 9 of `docs/protocol.md` that is made from it.

The file is the source: its texts for people are edited there, and nowhere else. Owns what the code
knows better and so fills in (names, types, defaults and order of the fields, columns, codes,
limits), and how the section looks. `python -m tests.wire.protocol_tables` writes the file with all
that the code knows, and the section from the file; a test says when that is needed.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

from fifo.wire import VERSION_MAX, VERSION_MIN, Code, columns, handshake, limits
from fifo.wire.errors import RETRYABLE
from fifo.wire.fields import NAMES, U16_MAX, U63_MAX, Check
from fifo.wire.messages import REGISTRY, Message

PAGE: Final = Path(__file__).parents[2] / "docs" / "protocol.md"
FILE: Final = PAGE.with_suffix(".json")

COLUMNS_MAX: Final = 120
"""Of a line of the page; a row of a table may be longer."""

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

# The file.


def source() -> dict[str, Any]:
    """Return what the file says now."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def completed(known: dict[str, Any]) -> str:
    """Return the file with the texts of `known`, and all else as the code has it."""
    texts = {one["type"]: one for one in known["messages"]}
    found = {
        "versions": [VERSION_MIN, VERSION_MAX],
        "types": {**TYPES, "token range": "[positive, positive]"},
        "messages": [_message(cls, texts.get(cls.TYPE, {})) for cls in REGISTRY.values()],
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


def _message(cls: type[Message], known: dict[str, Any]) -> dict[str, Any]:
    """`sender`: who sends it, as the page says it; `more`: paragraphs behind the table."""
    sender = known.get("sender", "")
    texts = {one["name"]: one["text"] for one in known.get("fields", ())}
    checks = dict(cls._CHECKS)
    return {
        "type": cls.TYPE,
        "name": cls.__name__,
        "from": [
            name for mark, name in (("C", "client"), ("N", "node")) if mark in _senders(sender)
        ],
        "sender": sender,
        "text": known.get("text", ""),
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
        "more": known.get("more", []),
    }


def _senders(sender: str) -> list[str]:
    """Return who sends it at any time: not what is said behind the first comma."""
    return sender.split(",")[0].split(" and ")


def type_of(check: Check) -> str:
    """Return what a field accepts in the notation of the page, with the names of `TYPES`."""
    found = NAMES[check]
    for name, definition in TYPES.items():
        found = re.sub(rf"(?<![\w.-]){re.escape(definition)}(?!\d)", name, found)
    return found


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


# The page.


def rendered(page: str, known: dict[str, Any]) -> str:
    """Return the page with the messages of section 9 as the file has them."""
    found = re.search(r"^### \d+ .*?(?=^## )", page, re.MULTILINE | re.DOTALL)
    assert found is not None, "section 9 has no messages"
    parts = "\n".join(_part(one) for one in known["messages"])
    return f"{page[: found.start()]}{parts}\n{page[found.end() :]}"


def _part(message: dict[str, Any]) -> str:
    said = f"{message['sender']}. {message['text']}".strip()
    if not message["fields"]:
        said += " No fields."
    lines = [f"### {message['type']} {message['name']}", "", _filled(said)]
    if message["fields"]:
        lines += ["", "| field | type | default | |", "|--|--|--|--|"]
        lines += [_row(one) for one in message["fields"]]
    before = ""
    for paragraph in message["more"]:
        is_item = paragraph.startswith("- ")
        lines += [] if is_item and before.startswith("- ") else [""]
        lines.append(_filled(paragraph, "  " if is_item else ""))
        before = paragraph
    return "\n".join([*lines, ""])


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        COLUMNS_MAX,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _row(field: dict[str, Any]) -> str:
    cells = f"| {field['name']} | {field['type']} | {_default(field)} | {field['text']} |"
    return " ".join(cells.split())


def _default(field: dict[str, Any]) -> str:
    """Return the default of a field as the page writes it."""
    if field["required"]:
        return "required"
    default = field["default"]
    if default == "":
        return "empty" if field["type"].startswith("bytes") else '`""`'
    return {"None": "nil", "[]": "`[]`"}.get(repr(default), str(default).lower())


if __name__ == "__main__":
    FILE.write_text(completed(source()), encoding="utf-8")
    written = rendered(PAGE.read_text(encoding="utf-8"), source())
    PAGE.write_text(written, encoding="utf-8")
