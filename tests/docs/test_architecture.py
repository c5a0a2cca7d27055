"""docs/architecture.md shows the floors of tests/test_house.py: the picture and who knows whom.

Reads FLOORS and the page. Must not know why a room may know another: that is the page's to say.
"""

from __future__ import annotations

import re

from tests.support.pages import page
from tests.test_house import FLOORS

_ROOM = re.compile(r"^- \*\*([\w.]+)\*\* knows (.+?):\s+\S", re.MULTILINE | re.DOTALL)
_FLOOR = re.compile(r"^ {3,4}(\d+) +(.+)$", re.MULTILINE)


def floors() -> dict[str, int]:
    """The floor of each room: one above the highest that it knows."""
    found: dict[str, int] = {}
    for name, room in FLOORS.items():
        found[name] = 1 + max((found[known] for known in room.knows), default=0)
    return found


def test_the_picture_shows_every_room_on_its_floor() -> None:
    section = page("architecture").partition("## The floors")[2].partition("## ")[0]
    shown = {
        name: int(number) for number, names in _FLOOR.findall(section) for name in names.split()
    }
    assert shown == floors()


def test_the_page_lists_the_rooms_that_each_room_knows() -> None:
    said = {name: _rooms(names) for name, names in _ROOM.findall(page("architecture"))}
    assert list(said) == list(FLOORS), "in the order of FLOORS"
    for name, known in said.items():
        assert known == FLOORS[name].knows, name


def _rooms(text: str) -> frozenset[str]:
    every, _, but = text.partition("every room but ")
    if every:
        return frozenset(re.findall(r"[\w.]+", text)) - {"no", "room"}
    return frozenset(FLOORS) - {"tests", *re.findall(r"[\w.]+", but)}
