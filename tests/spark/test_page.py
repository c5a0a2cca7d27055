"""Defaults, columns and bounds of docs/spark.md are those of the code."""

from __future__ import annotations

import re
import threading
from typing import cast

import pyarrow as pa
import pytest

import fifo.spark
from fifo.blocking import BlockingPinnedView
from fifo.client import durations
from fifo.spark import SourceError, columns, limits, options, scanning, tables
from fifo.spark.options import BATCH_READ, STREAM_READ
from fifo.spark.settling import _Task
from tests.support.pages import page, rows

pytestmark = pytest.mark.slow

GIVEN = {"url": "fifo://h:1", "queue": "q"}
NUMBER = re.compile(r"\d+")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def listed(heading: str) -> dict[str, list[str]]:
    """The tables of a section by the first cell of each row; a row of several names is each's."""
    found = [cells(line) for line in rows(page("spark"), heading)]
    return {name: rest for first, *rest in found for name in re.findall(r"`(\w+)`", first)}


def test_the_columns_of_the_page_are_those_of_a_read() -> None:
    kinds = {
        name: rest[0].replace("map of string to string", "map<string,string>")
        for name, rest in listed("Columns").items()
    }
    schema = columns.read_schema(binary_keys=False)
    assert kinds == {field.name: field.dataType.simpleString() for field in schema.fields}


def test_the_defaults_of_the_page_are_those_of_the_code() -> None:
    said = {name: rest[1] for name, rest in listed("Options").items()}
    read = options.parse(GIVEN, BATCH_READ)
    stream = options.parse({**GIVEN, "reservation": "r"}, STREAM_READ)
    assert (said["ackMode"], read.ack_mode) == ("`none`", None)
    assert (said["maxRowsPerTrigger"], stream.max_rows) == ("65 535", limits.HELD_MAX)
    assert said["maxMessages"] == "all; `manual`: 65 535"
    assert (said["maxBytesPerTrigger"], stream.max_bytes) == ("256 MiB", 256 << 20)
    assert durations.parse_ms(said["lock"].replace(" min", "m"), "lock") == 1000 * limits.LOCK_S
    assert (said["maxLock"], limits.MAX_LOCK_S) == ("1 day", 86_400)
    assert (said["failOnDataLoss"], stream.fail_on_data_loss) == ("true", True)
    assert (said["binaryKeys"], read.binary_keys) == ("false", False)
    assert (said["partitions"][0], stream.partitions, read.partitions_given) == ("1", 1, None)


def test_a_scan_has_a_task_for_each_hundred_thousand_messages_up_to_64() -> None:
    said = cells(next(one for one in rows(page("spark"), "Options") if "`partitions`" in one))[3]
    assert "one per 100 000 messages, up to 64" in said
    counts = (0, 99_999, 100_000, 6_299_999, 10**9)
    assert [scanning._parts_of(count) for count in counts] == [1, 1, 2, 63, 64]


def test_the_system_tables_of_the_page_have_these_columns() -> None:
    text = page("spark").split("### System tables")[1].split("\n## ")[0]
    items = re.findall(r"^- `(\w+)`: ((?:.+\n)(?:  .+\n)*)", text, re.MULTILINE)
    assert [name for name, _ in items] == list(options.TABLES)
    of_messages = {"queue", "id", "key", "attempt"}
    for name, said in items:
        common = {"queue"} if name in ("queues", "consumers") else of_messages
        bare = re.sub(r"\([^)]*\)", "", said)
        found = set(re.findall(r"`(\w+)`", bare)) | common
        assert found == set(tables.schema_of(name).fieldNames()), name


def test_all_columns_of_a_read_can_be_written_again() -> None:
    """Those that only a read has are left out."""
    sent = columns.sent(columns.read_schema(binary_keys=False))
    assert sent.fieldNames() == ["body", "key", "headers", "priority"]
    columns.check_written(sent)


def test_ids_may_be_texts_bytes_or_whole_numbers() -> None:
    for ids in (["a"], [b"\xff"], [7]):
        [batch] = pa.table({"body": ["x"], "number": ids}).to_batches()
        assert len(columns.to_messages(batch, 1, "number").columns["dedup_ids"]) == 1


def test_rows_with_the_same_verdict_are_one_request() -> None:
    task = _Task("q", "r")
    alike = task._alike(
        {"token": f"1.{n}", "verdict": "terminate", "reason": "a" if n < 5 else "b"}
        for n in range(1, 9)
    )
    assert sorted(map(len, alike.values())) == [4, 4]


def test_a_transaction_is_of_one_consumer() -> None:
    with pytest.raises(SourceError, match=r"tokens of 2 consumers: .* 65535 at most"):
        fifo.spark.transaction("fifo://127.0.0.1:1", "q", "r", ["1.65535", "2.1"])


def test_a_view_is_renewed_while_its_task_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_LEASE_S", 0.03)
    renewed = threading.Semaphore(0)

    class View:
        def renew(self) -> None:
            renewed.release()

    with scanning._Renewed(cast("BlockingPinnedView", View())):
        for _ in range(2):
            assert renewed.acquire(timeout=60)
