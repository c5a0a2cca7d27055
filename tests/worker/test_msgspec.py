"""Arguments that are structs of msgspec."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from fifo.worker import bodies
from fifo.worker.converters import converter
from fifo.worker.errors import Unfit

if TYPE_CHECKING:
    import msgspec
else:
    msgspec = pytest.importorskip("msgspec")


class Line(msgspec.Struct):
    name: str
    count: int = 1


class Order(msgspec.Struct, rename="camel"):
    order_id: int
    due: date
    lines: list[Line]
    blob: bytes
    by_number: dict[int, str]


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


ORDER = Order(1, date(2026, 11, 23), [Line("tea", 2)], b"\x00\xff", {7: "seven"})


@pytest.mark.parametrize("format", bodies.CODECS)
@pytest.mark.parametrize(
    ("hint", "value"),
    [(Order, ORDER), (list[Line], [Line("a")]), (Cat | Dog, Dog("Rex")), (Order | None, None)],
    ids=["struct", "list", "tagged union", "none"],
)
def test_a_struct_comes_back_as_it_was(hint: Any, value: Any, format: bodies.Format) -> None:
    codec = bodies.CODECS[format]
    body = bodies.encode(codec, {"value": value}, "value")
    payload: Any = bodies.decode(body, codec.content_type)
    assert converter(hint)(payload["value"]) == value


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (Line, {"name": 1}, "Expected `str`, got `int` - at `$.name`"),
        (Line, {}, "Object missing required field `name`"),
        (list[Line], [{"name": "a"}, 3], "[1]: Expected `object`, got `int`"),
    ],
    ids=["kind", "missing", "inside"],
)
def test_what_does_not_fit_a_struct_is_named_with_its_place(
    hint: Any, value: Any, text: str
) -> None:
    with pytest.raises(Unfit) as found:
        converter(hint)(value)
    assert str(found.value) == text
