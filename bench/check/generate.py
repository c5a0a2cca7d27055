"""Good histories of any size: `python -m bench.check.generate FOLDER --events N`.

Owns the made-up run: a steady rate of messages, each published, confirmed, delivered and acked; one
in a hundred nacked first and delivered again after its delay, one in a thousand terminated and
drained from the dead-letter queue. It keeps every rule, so that what the checker finds in a copy
that was damaged on purpose is known. Made by Spark, since twenty million events are many.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.check.form import VALUES
from bench.check.numbering import write_numbered
from bench.check.tuning import EVENTS_PER_PARTITION, tune
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

WAITS = "(0.001 + (n * 7919 % 1000) / 200000.0)"
"""From publishing to confirm, and from confirm to delivery: 1 to 6 ms, the same at each run."""

MESSAGE = {
    "t": f"10 + n / {PER_SECOND}",
    "name": f"concat('1.', 1 + n % {PUBLISHERS}, '.', n)",
    "publisher": f"concat('p', n % {PUBLISHERS})",
    "body": f"concat('p', n % {PUBLISHERS}, '-', n)",
    "one": f"n % {CONSUMERS} + 1",
    "other": f"(n + 3) % {CONSUMERS} + 1",
    "hopeless": "n % 1000 = 7",
    "failing": "n % 100 = 3",
}
"""The parts of all events of a message, by its number `n`."""

LIVES = ("NOT hopeless AND NOT failing", "failing", "hopeless")


class Step(NamedTuple):
    """An event in the life of a message; everything but the names is SQL."""

    lives: tuple[str, ...]
    """Of LIVES: whose messages have it."""
    f: str
    type: str
    process: str
    time: str
    fields: dict[str, str]


def _steps() -> list[Step]:
    """The lives of all messages."""
    first, again, dead = "one", "other", f"{CONSUMERS} + 1"
    seen = f"t + 2 * {WAITS}"
    back = f"{seen} + {DELAY_S} + 0.02"
    buried = f"{seen} + 0.02"
    publish = {"queue": "'work'", "body": "body"}
    good, failing, hopeless = LIVES

    def held(consumer: str, queue: str, attempt: int) -> dict[str, str]:
        token = f"n + {attempt}"
        return {"id": "name", "queue": f"'{queue}'", "consumer": consumer, "token": token}

    def deliver(
        lives: tuple[str, ...], consumer: str, queue: str, attempt: int, failures: int, at: str
    ) -> Step:
        fields = {
            **held(consumer, queue, attempt),
            "body": "body", "attempt": str(attempt), "failures": str(failures),
            "intact": "true", "lock_ms": "30000", "transit_s": "0.05",
        }  # fmt: skip
        if queue == "dead":
            fields["reason"] = "'terminated'"
        return Step(lives, "deliver", "ok", f"concat('c', {consumer})", at, fields)

    def settle(
        life: str, consumer: str, queue: str, attempt: int, verb: str, at: str
    ) -> list[Step]:
        asked = {**held(consumer, queue, attempt), "verb": f"'{verb}'"}
        if verb == "nack":
            asked["delay_s"] = str(DELAY_S)
        done = {**asked, "status": "'ok'", "late": "false"}
        process = f"concat('c', {consumer})"
        return [
            Step((life,), "settle", "invoke", process, f"{at} + 0.002", asked),
            Step((life,), "settle", "ok", process, f"{at} + 0.004", done),
        ]

    return [
        Step(LIVES, "publish", "invoke", "publisher", "t", publish),
        Step(LIVES, "publish", "ok", "publisher", f"t + {WAITS}", {**publish, "id": "name"}),
        deliver(LIVES, first, "work", 1, 0, seen),
        *settle(good, first, "work", 1, "ack", seen),
        *settle(failing, first, "work", 1, "nack", seen),
        deliver((failing,), again, "work", 2, 1, back),
        *settle(failing, again, "work", 2, "ack", back),
        *settle(hopeless, first, "work", 1, "terminate", seen),
        deliver((hopeless,), dead, "dead", 1, 0, buried),
        *settle(hopeless, dead, "dead", 1, "ack", buried),
    ]


def _ends(until: float) -> list[Step]:
    """Events of no message: declarations before all, and the last word."""
    left = """'{"work":0,"dead":0}'"""
    return [
        Step((), "declare", "ok", "'d1'", "1.0", {"queue": "'dead'", "spec": "'{}'"}),
        Step((), "declare", "ok", "'d1'", "2.0", {"queue": "'work'", "spec": f"'{SPEC}'"}),
        Step((), "left", "ok", "'d1'", str(until), {"queues": left}),
    ]


def rows(spark: SparkSession, messages: int, parts: int, steps: list[Step]) -> DataFrame:
    """Each event as the number of its message, of its step, and its time; not yet in order."""
    spark.range(0, messages, 1, parts).createOrReplaceTempView("numbers")
    lives = " ".join(
        f"WHEN {life} THEN array("
        + ", ".join(
            f"named_struct('step', {number}, 'time', {_seconds(step.time)})"
            for number, step in enumerate(steps)
            if life in step.lives
        )
        + ")"
        for life in LIVES
    )
    given = ", ".join(f"{MESSAGE[name]} AS {name}" for name in ("t", "hopeless", "failing"))
    apart = ", ".join(
        f"(-1L, {number}, {_seconds(step.time)})"
        for number, step in enumerate(steps)
        if not step.lives
    )
    return spark.sql(
        f"SELECT n, event.* FROM (SELECT n, explode(CASE {lives} END) AS event"
        f" FROM (SELECT n, {given} FROM (SELECT id AS n FROM numbers)))"
        f" UNION ALL SELECT * FROM VALUES {apart}"
    )


def _seconds(time: str) -> str:
    return f"CAST(round({time}, 6) AS double)"


def events_of(rows: DataFrame, steps: list[Step]) -> DataFrame:
    """The events of such rows. Fields that no event has are left out, as a history may do."""
    fields = [name for name in VALUES if any(name in step.fields for step in steps)]
    value = ", ".join(
        f"'{name}', CAST({_by_step([step.fields.get(name, 'null') for step in steps])}"
        f" AS {VALUES[name]})"
        for name in fields
    )
    names = (f"'{step.f}'" for step in steps), (f"'{step.type}'" for step in steps)
    f, kind = (_by_step(list(some)) for some in names)
    return rows.selectExpr(
        "*", *(f"{made} AS {name}" for name, made in MESSAGE.items())
    ).selectExpr(
        "time", "index", f"{kind} AS type", f"{f} AS f",
        f"{_by_step([step.process for step in steps])} AS process",
        f"named_struct({value}) AS value",
    )  # fmt: skip


def _by_step(given: list[str]) -> str:
    """The value of a step, as one expression over all steps."""
    steps: dict[str, list[str]] = defaultdict(list)
    for number, one in enumerate(given):
        steps[one].append(str(number))
    some = (f"WHEN step IN ({', '.join(of)}) THEN {one}" for one, of in steps.items())
    return f"CASE {' '.join(some)} END"


def write(spark: SparkSession, folder: Path, events: int) -> int:
    """Write a history of nearly so many events; gives how many."""
    tune(spark, events)
    parts = max(1, events // EVENTS_PER_PARTITION)
    messages = max(1, events // EVENTS_PER_MESSAGE)
    steps = [*_steps(), *_ends(20 + messages / PER_SECOND)]
    made = rows(spark, messages, parts, steps)
    finish = functools.partial(events_of, steps=steps)
    return write_numbered(made, folder, parts, order="n", finish=finish)


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
