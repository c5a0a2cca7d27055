"""Every command `fifo ...` that a page shows is one of the command line.

Owns where pages show commands: in backticks, and at the beginning of a line of a shell block. Must
not know what a command does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from node.cli.main import app
from tests.support.pytest_ids import ROOT

OTHER_WORDS = ("progress", "protocol-peer", "storage")
"""Pages with commands that are planned, and with byte strings that begin with the same word."""

PAGES = (
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.stem not in OTHER_WORDS),
)

_INLINE = re.compile(r"`fifo ([a-z][^`]*)`")
_LINE = re.compile(r"^fifo ([a-z].*)$", re.MULTILINE)
_WORD = re.compile(r"[a-z][a-z-]*")


def shown(text: str) -> Iterator[str]:
    """The words behind `fifo` in each command of a text."""
    folded = re.sub(r"\s*\n\s*", " ", text)
    yield from _INLINE.findall(folded)
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from _LINE.findall(block)


def unknown(command: str) -> str | None:
    """The first word of a command that names nothing; None where all do."""
    found: Any = get_command(app)
    for word in command.split():
        names = getattr(found, "commands", None)
        if names is None or not _WORD.fullmatch(word):
            return None
        if word not in names:
            return word
        found = names[word]
    return None


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_command_of_a_page_exists(path: Path) -> None:
    commands = set(shown(path.read_text(encoding="utf-8")))
    assert sorted(one for one in commands if unknown(one) is not None) == []


def test_a_command_that_does_not_exist_is_found() -> None:
    text = "`fifo queue consumers Q`\n```sh\nfifo top\nfifo queue list --watch\n```\n"
    assert [one for one in shown(text) if unknown(one)] == ["queue consumers Q", "top"]
