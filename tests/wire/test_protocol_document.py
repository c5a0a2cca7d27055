"""`docs/protocol.md` agrees with the code: numbers, names, order, types, bounds, defaults."""

import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

import pytest

from fifo.wire import BadMessage, Code, Decoder, Frame, columns, encode, limits
from fifo.wire.columns import IGNORABLE
from fifo.wire.errors import RETRYABLE
from fifo.wire.fields import U63_MAX, Check, FieldError
from fifo.wire.messages import REGISTRY, Message
from fifo.words.handles import handle_of
from fifo.words.options import Kind, Option
from fifo.words.queue_options import QUEUE_OPTIONS
from tests.wire import protocol_tables
from tests.wire.examples import EXAMPLES
from tests.wire.hex_example import STEPS, listing, pieces

PAGE: Final = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


def section(number: int) -> str:
    """The text of one numbered section."""
    found = re.search(rf"^## {number}\. .*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row of a text, headings and rules left out."""
    bare = re.sub(r"^\|.*\|\n\|--.*\n", "", text, flags=re.MULTILINE)
    lines = [line for line in bare.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def messages_of_the_page() -> dict[tuple[int, str], list[list[str]]]:
    """(number, name) of every message on the page, with the rows of its table."""
    parts = re.split(r"^### (\d+) (\w+)$", section(9), flags=re.MULTILINE)[1:]
    return {
        (int(number), name): rows(text)
        for number, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


PAGE_MESSAGES: Final = messages_of_the_page()
PAGE_FIELDS: Final = [
    (REGISTRY[number], row) for (number, _), table in PAGE_MESSAGES.items() for row in table
]


SOURCE: Final = protocol_tables.source()


def test_the_file_has_all_that_the_code_knows() -> None:
    """Else run `python -m tests.wire.protocol_tables`."""
    assert protocol_tables.FILE.read_text(encoding="utf-8") == protocol_tables.completed(SOURCE)


def test_the_messages_of_the_page_are_those_of_the_file() -> None:
    """Else run `python -m tests.wire.protocol_tables`: what is edited is the file."""
    assert protocol_tables.rendered(PAGE, SOURCE) == PAGE


@pytest.mark.parametrize("message", SOURCE["messages"], ids=lambda message: message["name"])
def test_the_file_says_who_sends_a_message(message: dict[str, Any]) -> None:
    assert message["from"], message["sender"]


def test_the_file_suffices_to_read_every_example() -> None:
    """Names and defaults by position, as a generated client would take them."""
    described = {one["type"]: one for one in SOURCE["messages"]}
    for example in EXAMPLES:
        listed = described[example.TYPE]["fields"]
        whole, short = example.to_fields(), type(example).__name__
        assert [one["name"] for one in listed] == [field.name for field in fields(example)], short
        assert len(whole) >= sum([one["required"] for one in listed]), short


def test_the_page_lists_every_message_in_order() -> None:
    assert list(PAGE_MESSAGES) == [(number, cls.__name__) for number, cls in REGISTRY.items()]


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=lambda cls: cls.__name__)
def test_the_page_lists_the_fields_of_a_message_in_order(cls: type[Message]) -> None:
    table = PAGE_MESSAGES[cls.TYPE, cls.__name__]
    assert [row[0] for row in table] == [field.name for field in fields(cls)]
    assert all(len(row) == 4 for row in table)


DEFAULTS: Final[dict[str, Any]] = {
    "required": MISSING,
    "nil": None,
    "`[]`": (),
    '`""`': "",
    "empty": b"",
    "true": True,
    "false": False,
}


@pytest.mark.parametrize(
    ("cls", "row"), PAGE_FIELDS, ids=[f"{cls.__name__}.{row[0]}" for cls, row in PAGE_FIELDS]
)
def test_the_default_of_a_field_is_that_of_the_page(cls: type[Message], row: list[str]) -> None:
    (field,) = [one for one in fields(cls) if one.name == row[0]]
    said = DEFAULTS[row[2]] if row[2] in DEFAULTS else int(row[2])
    assert (field.default, type(field.default)) == (said, type(said))


def accepts(check: Check, value: Any) -> bool:
    try:
        check(value)
    except FieldError:
        return False
    return True


def integers(low: int, high: int) -> tuple[list[Any], list[Any]]:
    return [low, high], [low - 1, high + 1, True, 1.0, None]


def sized(of: Callable[[int], Any], low: int, high: int) -> tuple[list[Any], list[Any]]:
    refused = [of(high + 1), 1] + ([of(low - 1)] if low else [])
    return [of(low), of(high)], refused


def samples(kind: str) -> tuple[list[Any], list[Any]]:
    """Values at the bounds of a type as the page writes it, and values just beyond them."""
    kind = kind.removesuffix("?")
    if kind.startswith("list "):
        return list_samples(kind)
    if kind.endswith(" or nil"):
        accepted, refused = samples(kind.removesuffix(" or nil"))
        return [*accepted, None], [value for value in refused if value is not None]
    if bounds := re.fullmatch(r"(integer|text|bytes) (-?\d+)\.\.(\d+)", kind):
        low, high = int(bounds[2]), int(bounds[3])
        if bounds[1] == "integer":
            return integers(low, high)
        unit: str | bytes = "x" if bounds[1] == "text" else b"x"
        return sized(lambda size: unit * size, low, high)
    return NAMED[kind]


def list_samples(kind: str) -> tuple[list[Any], list[Any]]:
    found = re.fullmatch(r"list (\d+) of (.*)", kind)
    assert found is not None
    most, inner = int(found[1]), found[2]
    if inner.startswith("["):
        item = [samples(one)[0][0] for one in re.split(r", (?![^\[]*\])", inner[1:-1])]
        refused = [[[*item, 1]], [item[:1]]]
    else:
        item = samples(inner)[0][0]
        refused = [[one] for one in samples(inner)[1]]
    return [[], [item] * most], [[item] * (most + 1), None, {}, *refused]


def range_samples(most: int) -> tuple[list[Any], list[Any]]:
    many = [[n, n] for n in range(1, most + 1)]
    refused = [[[0, 1]], [[2, 1]], [[1, 2], [2, 3]], [*many, [most + 1, most + 1]], None]
    return [[], [[1, U63_MAX]], many], refused


RUN: Final = [1, 0, 0, 0, 0]
NAMED: Final[dict[str, tuple[list[Any], list[Any]]]] = {
    "number": integers(0, U63_MAX),
    "positive": integers(1, U63_MAX),
    "duration": integers(0, limits.DURATION_MS_MAX),
    "name": sized(lambda size: "x" * size, 1, 255),
    "bool": ([True, False], [0, 1, None]),
    "any": ([None, 1, "x", b"x", [1], {"a": 1}], [{1: 1}]),
    "map": ([{}, {"a": [1]}], [None, [], {1: 1}]),
    "error": ([None, ["gap", "x", True], ["gap", "x", True, {}]], [["gap", "x"], "gap"]),
    "repeats": (
        [[], [[0, 1, 1, 1]], [[10_000, 10_000, U63_MAX, U63_MAX]] * 10_000],
        [[[0, 1, 1, 1]] * 10_001, [[0, 0, 1, 1]], [[0, 1, 0, 1]], [[0, 1, 1]], None],
    ),
    "ranges": range_samples(10_000),
    "settled ranges": range_samples(4_096),
    "columns": (
        [[], [[0, 0]], [[65_535, 8_388_608]] * 64],
        [[[65_536, 0]], [[0, 8_388_609]], [[0, 0]] * 65, [[0]]],
    ),
    "runs": ([[], [RUN], [RUN] * 65_535], [[RUN] * 65_536, [[0, 0, 0, 0, 0]], [RUN[:4]]]),
    "dead letters": ([[], [[0, {}]] * 65_535], [[[0, {}]] * 65_536, [[-1, {}]], [[0, 1]]]),
    "nodes": ([[], [["n", ""]] * 64], [[["n", ""]] * 65, [["", ""]], [["n", "x" * 256]]]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "row"), PAGE_FIELDS, ids=[f"{cls.__name__}.{row[0]}" for cls, row in PAGE_FIELDS]
)
def test_a_field_accepts_exactly_the_values_of_the_page(cls: type[Message], row: list[str]) -> None:
    check = dict(cls._CHECKS)[row[0]]
    accepted, refused = samples(row[1])
    for value in accepted:
        assert accepts(check, value), f"{row[1]} should hold {str(value)[:80]}"
    for value in refused:
        assert not accepts(check, value), f"{row[1]} should not hold {str(value)[:80]}"


def test_the_page_lists_every_error_code_with_whether_to_retry() -> None:
    listed = [(row[0].strip("`"), row[1]) for row in rows(section(11))]
    assert listed == [(str(code), "yes" if code in RETRYABLE else "no") for code in Code]


def test_the_page_lists_every_limit() -> None:
    listed = {row[0]: int(row[1]) for row in rows(section(12))}
    assert listed == protocol_tables.bounds()


def test_the_page_lists_every_column() -> None:
    listed = {int(row[0]): row for row in rows(section(10))}
    places = protocol_tables.COLUMNS_IN
    assert set(listed) == frozenset().union(*places.values())
    for tag, row in listed.items():
        assert row[3] == ", ".join([place for place, tags in places.items() if tag in tags])
        width, of_queues = columns._WIDTH.get(tag), columns._QUEUE_WIDTH.get(tag)
        written = f"{of_queues} per queue" if of_queues else str(width or "as the lengths say")
        assert row[2] == written
    assert f"the bit {IGNORABLE}" in section(10)


def test_the_example_is_the_output_of_the_code() -> None:
    assert section(14).endswith(listing()), "python -m tests.wire.hex_example prints it"


def test_the_example_of_a_handle_is_the_output_of_the_code() -> None:
    found = re.search(
        r"the key `(\w+)`, consumer (\d+) and token (\d+) give the handle\n`(\w+)`", section(6)
    )
    assert found, "the page has no example of a handle"
    key, consumer, token, handle = found.groups()
    assert handle_of(bytes.fromhex(key), int(consumer), int(token)).hex() == handle


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step.message).__name__)
def test_the_pieces_of_the_example_are_whole_frames(step: Any) -> None:
    data = b"".join(part for part, _ in pieces(step))
    raw = [part for part, _ in step.raw]
    assert data == b"".join(encode(step.message, step.correlation, raw))
    (frame,) = Decoder().receive_data(data)
    assert not isinstance(frame, BadMessage)
    assert isinstance(frame, Frame)
    assert frame.correlation == step.correlation


NUMBERS: Final = (Kind.DURATION, Kind.COUNT, Kind.SIZE)


def row_of(option: Option) -> str:
    """The row of the page for an option of a queue."""
    if option.kind in NUMBERS:
        unit = {Kind.DURATION: " ms", Kind.SIZE: " bytes"}.get(option.kind, "")
        value = f"{option.low} to {option.high}{unit}"
    elif option.kind is Kind.CHOICE:
        value = ", ".join(f"`{choice}`" for choice in option.choices)
    elif option.off:
        value = f"bool; false: {option.off.replace('-', ' ')}"
    else:
        value = {Kind.FLAG: "bool", Kind.QUEUE: "queue name", Kind.BACKOFF: "backoff"}[option.kind]
    default = option.default_text if option.default is None else f"`{option.default}`".lower()
    return f"| `{option.wire_name}` | {value} | {default} | {option.help} |"


def test_the_page_lists_the_options_of_a_queue() -> None:
    table = [line for line in section(8).splitlines() if line.startswith("| `")]
    assert table == [row_of(option) for option in QUEUE_OPTIONS], "\n" + "\n".join(
        row_of(option) for option in QUEUE_OPTIONS
    )
