"""Frames become Arrow batches column by column: the same rows as message by message."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fifo.client import Delivered, Delivery, DurableMessage
from fifo.client.consuming.delivered import Stretch
from fifo.spark import batches, columns
from fifo.spark.ahead import ahead
from fifo.spark.errors import SourceError
from fifo.wire.columns import Publication, encode_headers, pack_publication
from fifo.wire.messages import Deliver
from tests.support.pytest_ids import ROOT

COUNT = 12
ONE_RUN = ((COUNT, 3, 9, 55, 1_700_000_000_123),)
RUNS = ((5, 3, 9, 55, 1_700_000_000_123), (6, 3, 10, 1, 1_700_000_000_999), (1, 4, 10, 7, 0))
BODIES = [b"body %d" % at * (at % 4) for at in range(COUNT)]
KEYS = [b"" if at % 3 else "käy %d".encode() % at for at in range(COUNT)]
HEADERS = [encode_headers({"a": "ä", "b": str(at % 3)}) if at % 2 else b"" for at in range(COUNT)]


def frame(
    runs: Sequence[tuple[int, int, int, int, int]] = ONE_RUN, **given: Sequence[Any]
) -> Delivery:
    """A delivery of COUNT messages, from token 100 on."""
    listed, raw = pack_publication(Publication(BODIES, **given))
    message = Deliver(7, "orders", 100, COUNT, 5_000, listed, tuple(runs))
    return Delivery(message, memoryview(b"".join(raw)), 0.0, 0.0)


def rows(messages: Delivered[DurableMessage], **kind: Any) -> list[dict[str, Any]]:
    """All rows of a task."""
    schema = columns.arrow_schema(**{"binary_keys": False, **kind})
    made = batches.to_batches(messages, schema, consumer=4)
    return [row for batch in made for row in batch.to_pylist()]


@pytest.mark.parametrize("runs", [ONE_RUN, RUNS])
@pytest.mark.parametrize(
    "given",
    [{}, {"keys": KEYS, "headers": HEADERS, "priorities": [at % 10 for at in range(COUNT)]}],
)
def test_rows_are_those_of_the_messages(
    runs: Sequence[tuple[int, int, int, int, int]], given: dict[str, Sequence[Any]]
) -> None:
    """Of two frames, the first from its third message on."""
    stretches = [Stretch(frame(runs, **given), 2, COUNT - 2), Stretch(frame(), 0, 1)]
    messages = Delivered(stretches, DurableMessage)
    expected = [
        {
            "body": one.body,
            "key": one.key,
            "headers": list(one.headers.items()),
            "priority": one.priority,
            "id": one.id,
            "attempt": one.attempt,
            "published_at": one.published_at,
            "queue": "orders",
            "token": f"4.{one.token}",
        }
        for one in messages
    ]
    assert (
        rows(Delivered([Stretch(frame(runs, **given), 2, COUNT - 2)], DurableMessage))
        == (expected[:-1])
    )
    assert rows(messages) == expected


def test_only_the_columns_that_are_wanted_are_made_in_their_order() -> None:
    messages = Delivered([Stretch(frame(), 0, COUNT)], DurableMessage)
    found = rows(messages, names=("attempt", "id"))
    assert found[0] == {"attempt": 1, "id": "3.9.55"}
    assert list(found[0]) == ["attempt", "id"]


def test_without_a_reservation_there_is_no_token() -> None:
    messages = Delivered([Stretch(frame(), 0, COUNT)], DurableMessage)
    schema = columns.arrow_schema(binary_keys=False, names=("token",))
    (batch,) = batches.to_batches(messages, schema)
    assert batch.column(0).null_count == COUNT


def test_a_key_that_is_no_text_is_named_or_read_as_bytes() -> None:
    keys = [b"fine"] * (COUNT - 1) + [b"\xff"]
    messages = Delivered([Stretch(frame(keys=keys), 0, COUNT)], DurableMessage)
    with pytest.raises(SourceError, match=r"the key of message 3\.9\.66 is not UTF-8; read with"):
        rows(messages)
    assert [row["key"] for row in rows(messages, binary_keys=True)] == keys


def test_one_answer_is_asked_for_while_the_last_is_used() -> None:
    """And no more than one."""
    asked: list[int] = []
    second = threading.Event()

    def answers() -> Iterator[str]:
        for number in range(4):
            asked.append(number)
            if number == 1:
                second.set()
            yield f"answer {number}"

    coming = ahead(answers())
    assert next(coming) == "answer 0"
    assert second.wait(10)
    assert asked == [0, 1]
    assert list(coming) == ["answer 1", "answer 2", "answer 3"]


def test_an_error_of_a_question_comes_in_its_turn() -> None:
    def answers() -> Iterator[str]:
        yield "fine"
        raise SourceError("no longer held")

    coming = ahead(answers())
    assert next(coming) == "fine"
    with pytest.raises(SourceError, match="no longer held"):
        next(coming)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("given", ["", "keys=KEYS"])
def test_rows_are_made_without_pandas(given: str) -> None:
    """Arrow imports it at the first value of Python's, half a second in each process of Spark's."""
    program = f"""
import sys
from tests.spark.test_batches import *
assert "pandas" not in sys.modules, "something else has it"
messages = Delivered([Stretch(frame(RUNS, {given}), 2, 9)], DurableMessage)
schema = columns.arrow_schema(binary_keys=False)
assert [one.num_rows for one in batches.to_batches(messages, schema, consumer=4)] == [9]
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
