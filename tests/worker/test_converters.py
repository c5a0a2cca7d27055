"""Values of arguments: every kind of hint, there and back, and what does not fit."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID

import pydantic
import pytest

import fifo
from fifo.worker import bodies
from fifo.worker.converters import converter
from fifo.worker.errors import BadTask, Unfit


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: float


class Options(TypedDict):
    fast: bool
    note: NotRequired[str]


@dataclass
class Tree:
    name: str
    parts: list[Tree] = field(default_factory=list)
    at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a tree has a name")


class Model(pydantic.BaseModel):
    id: int
    when: date


Id = NewType("Id", int)

FITTING: list[tuple[Any, Any]] = [
    (Any, {"a": [1, None]}),
    (int, 2**63),
    (float, 1.5),
    (bool, True),
    (str, "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n"),
    (bytes, b"\x00\xff"),
    (None, None),
    (Id, 7),
    (Annotated[int, "metadata", []], 7),
    (int | None, None),
    (list[int], [1, 2]),
    (Sequence[str], ["a"]),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[int, str], (1, "a")),
    (dict[str, list[float]], {"a": [1.0]}),
    (dict[int, str], {1: "a"}),
    (Mapping[str, Colour], {"a": Colour.RED}),
    (Literal["a", 1], 1),
    (Level, Level.LOW),
    (datetime, datetime(2026, 11, 23, 14, 55, tzinfo=UTC)),
    (date, date(2026, 11, 23)),
    (time, time(14, 55)),
    (timedelta, timedelta(minutes=3)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=5)),
    (Path, Path("a/b")),
    (Point, Point(1, 2.0)),
    (Options, {"fast": True}),
    (Tree, Tree("root", [Tree("leaf", at=datetime(2026, 1, 1))])),
    (Tree | int, 3),
    (Model, Model(id=1, when=date(2026, 11, 23))),
]


@pytest.mark.parametrize("format", bodies.CODECS)
@pytest.mark.parametrize(("hint", "value"), FITTING, ids=lambda one: str(one)[:40])
def test_a_value_comes_back_as_it_was(hint: Any, value: Any, format: bodies.Format) -> None:
    codec = bodies.CODECS[format]
    body = bodies.encode(codec, value, "value")
    found = converter(hint)(bodies.decode(body, codec.content_type))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (int, True, "expected an integer, got True"),
        (int, 1.0, "expected an integer, got 1.0"),
        (float, "1", "expected a number, got '1'"),
        (str, 1, "expected a text, got 1"),
        (bytes, "not base64!", "expected bytes, or their base64, got 'not base64!'"),
        (int | None, "a", "expected an integer, got 'a'"),
        (int | str, [], "expected int or str, got []"),
        (list[int], [1, "a"], "[1]: expected an integer, got 'a'"),
        (set[Any], [[]], "unhashable type: 'list'"),
        (tuple[int, str], [1], "expected a list of 2, got [1]"),
        (dict[str, int], {"a": None}, "['a']: expected an integer, got None"),
        (dict[int, int], {"a": 1}, "['a']: expected int as a key, got 'a'"),
        (Literal["a"], "b", "expected 'a', got 'b'"),
        (Colour, "blue", "expected 'red', got 'blue'"),
        (datetime, "yesterday", "expected a date and time (ISO 8601), got 'yesterday'"),
        (timedelta, 1e300, "expected seconds, got 1e+300"),
        (Decimal, "x", "expected a decimal number, got 'x'"),
        (Options, {"note": "a"}, ".fast: is missing (Options)"),
        (Point, [1, "a"], "[1]: expected a number, got 'a'"),
        (Tree, {"parts": []}, ".name: is missing (Tree)"),
        (Tree, {"name": "a", "parts": [{"name": 1}]}, ".parts[0].name: expected a text, got 1"),
        (Tree, {"name": ""}, "Tree: a tree has a name"),
        (Tree, [], "expected an object (Tree), got []"),
        (Model, {"id": "x", "when": "2026-11-23"}, "1 validation error for Model id"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_with_its_place(hint: Any, value: Any, text: str) -> None:
    with pytest.raises(Unfit) as found:
        converter(hint)(value)
    assert str(found.value).startswith(text)


def test_fields_that_are_not_known_are_left_out() -> None:
    """As models do: a sender of newer code may have more."""
    assert converter(Tree)({"name": "a", "newer": 1}) == Tree("a")


def test_a_type_without_a_form_in_a_body_is_refused_where_the_task_is_made() -> None:
    with pytest.raises(BadTask, match="socket cannot be read from a body: use a dataclass"):
        converter(list[socket.socket])


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), {"a": {1, object()}}, "\ud800"],
    ids=["object", "nan", "nested", "surrogate"],
)
def test_what_no_body_can_hold_is_refused_where_it_is_sent(value: Any) -> None:
    with pytest.raises(fifo.InvalidArgument, match=r"^ship: arguments: "):
        bodies.encode(bodies.CODECS["json"], {"value": value}, "ship: arguments")


def test_a_content_type_that_is_not_known_is_named() -> None:
    with pytest.raises(Unfit, match="the content type is 'text/html', not application/json or ap"):
        bodies.decode(b"", "text/html; charset=utf-8")
