"""Good histories of any size: `python -m bench.check.generate FOLDER --events N`.

Owns the made-up run: a steady rate of messages, each published, confirmed, delivered and acked; one
in a hundred nacked first and delivered again after its delay, one in a thousand terminated and
drained from the dead-letter queue. It keeps every rule, so that what the checker finds in a copy
that was damaged on purpose is known. Made by Spark, since twenty million events are many.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.check.form import VALUES
from bench.check.numbering import write_numbered
from bench.check.reading import EVENTS_PER_PARTITION, tune
from bench.spark import JavaMissing, start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PER_SECOND = 20_000
PUBLISHERS = 4
CONSUMERS = 8
DELAY_S = 0.3

EVENTS_PER_MESSAGE = 5
"""Nearly: one in a hundred has eight, one in a thousand as well."""

SPEC = '{"dead_letter":"dead","max_deliveries":5,"lock":30}'

MESSAGES = f"""
SELECT id AS n, 10 + id / {PER_SECOND} AS t, concat('1.', 1 + id % {PUBLISHERS}, '.', id) AS name,
  concat('p', id % {PUBLISHERS}) AS publisher, concat('p', id % {PUBLISHERS}, '-', id) AS body,
  id % {CONSUMERS} + 1 AS one, (id + 3) % {CONSUMERS} + 1 AS other,
  id % 1000 = 7 AS hopeless, id % 100 = 3 AS failing
FROM range({{first}}, {{last}}, 1, {{parts}})
"""

WAITS = "(0.001 + (n * 7919 % 1000) / 200000.0)"
"""From publishing to confirm, and from confirm to delivery: 1 to 6 ms, the same at each run."""


def _steps() -> list[tuple[str, str, str, str, str, str]]:
    """(only for, f, type, process, time, fields): the life of a message."""
    first, again, dead = "one", "other", f"{CONSUMERS} + 1"
    seen = f"t + 2 * {WAITS}"
    back = f"{seen} + {DELAY_S} + 0.02"
    buried = f"{seen} + 0.02"
    publish = "queue: 'work', body: body"

    def held(consumer: str, queue: str, attempt: int) -> str:
        return f"id: name, queue: '{queue}', consumer: {consumer}, token: n + {attempt}"

    def deliver(consumer: str, queue: str, attempt: int, failures: int, reason: str) -> str:
        told = f"attempt: {attempt}, failures: {failures}, reason: {reason}"
        sure = "intact: true, lock_ms: 30000, transit_s: 0.05"
        return f"{held(consumer, queue, attempt)}, body: body, {told}, {sure}"

    def settle(
        only: str, consumer: str, queue: str, attempt: int, verb: str, at: str
    ) -> list[tuple[str, str, str, str, str, str]]:
        asked = f"{held(consumer, queue, attempt)}, verb: '{verb}'"
        asked += f", delay_s: {DELAY_S}" if verb == "nack" else ""
        process = f"concat('c', {consumer})"
        return [
            (only, "settle", "invoke", process, f"{at} + 0.002", asked),
            (only, "settle", "ok", process, f"{at} + 0.004", f"{asked}, status: 'ok', late: false"),
        ]

    process = f"concat('c', {first})"
    return [
        ("true", "publish", "invoke", "publisher", "t", publish),
        ("true", "publish", "ok", "publisher", f"t + {WAITS}", f"{publish}, id: name"),
        ("true", "deliver", "ok", process, seen, deliver(first, "work", 1, 0, "null")),
        *settle("NOT hopeless AND NOT failing", first, "work", 1, "ack", seen),
        *settle("failing", first, "work", 1, "nack", seen),
        ("failing", "deliver", "ok", f"concat('c', {again})", back,
         deliver(again, "work", 2, 1, "null")),
        *settle("failing", again, "work", 2, "ack", back),
        *settle("hopeless", first, "work", 1, "terminate", seen),
        ("hopeless", "deliver", "ok", f"concat('c', {dead})", buried,
         deliver(dead, "dead", 1, 0, "'terminated'")),
        *settle("hopeless", dead, "dead", 1, "ack", buried),
    ]  # fmt: skip


def good(spark: SparkSession, messages: int, parts: int, first: int = 0) -> DataFrame:
    """The events of so many messages, not yet in order."""
    query = MESSAGES.format(first=first, last=first + messages, parts=parts)
    spark.sql(query).createOrReplaceTempView("made_messages")
    alternatives = ", ".join(
        f"CASE WHEN {only} THEN {_event(f, kind, process, time, fields)} END"
        for only, f, kind, process, time, fields in _steps()
    )
    rare = [
        _event("declare", "ok", "'d1'", "1", "queue: 'dead', spec: '{}'"),
        _event("declare", "ok", "'d1'", "2", f"queue: 'work', spec: '{SPEC}'"),
        _event(
            "left", "ok", "'d1'", str(20 + (first + messages) / PER_SECOND),
            """queues: '{"work":0,"dead":0}'""",
        ),
    ]  # fmt: skip
    return spark.sql(
        f"SELECT event.* FROM (SELECT explode(array({alternatives})) AS event FROM made_messages)"
        f" WHERE event IS NOT NULL UNION ALL SELECT inline(array({', '.join(rare)}))"
    )


def _event(f: str, kind: str, process: str, time: str, fields: str) -> str:
    given = dict(part.split(": ", 1) for part in fields.split(", ")) if fields else {}
    values = ", ".join(
        f"'{name}', CAST({given.get(name, 'null')} AS {of})" for name, of in VALUES.items()
    )
    return (
        f"named_struct('type', '{kind}', 'f', '{f}', 'value', named_struct({values}),"
        f" 'process', {process}, 'time', CAST(round({time}, 6) AS double))"
    )


def write(spark: SparkSession, folder: Path, events: int) -> int:
    """Write a history of nearly so many events; gives how many."""
    tune(spark, events)
    parts = max(1, events // EVENTS_PER_PARTITION)
    made = good(spark, max(1, events // EVENTS_PER_MESSAGE), parts)
    return write_numbered(made, folder, parts, order="process")


def main() -> int:
    """Write one; 1 and one line on stderr where there is no Java."""
    parser = argparse.ArgumentParser(prog="python -m bench.check.generate", description=__doc__)
    parser.add_argument("folder", type=Path, help="is made, and must not exist")
    parser.add_argument("--events", type=int, default=200_000, help="nearly so many")
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} exists already")
    work = Path(tempfile.mkdtemp(prefix="fifo-history-"))
    try:
        from pyspark.sql import SparkSession

        context = start_spark("fifo history", "local[*]", work, {"spark.driver.memory": "3g"})
        print(f"{write(SparkSession(context), options.folder, options.events):,} events")
        context.stop()
    except JavaMissing as error:
        print(f"no Java for Spark: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
