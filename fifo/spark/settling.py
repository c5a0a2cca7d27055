"""Verdicts on single rows: ack, nack, release or terminate, by the column `token` of a read.

Owns `settle` and the outcome that it counts. What a token is belongs to `columns`, which opening of
a reservation is served to `reservation`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as sql

import fifo
from fifo.blocking import BlockingClient
from fifo.client import Opened
from fifo.spark import columns, limits
from fifo.spark.errors import SourceError, telling
from fifo.spark.holding import Follower
from fifo.spark.options import Login, with_login

_log = logging.getLogger("fifo.spark")

_LATEST: Final = 1
"""The generation to ask with: the broker's refusal names the present one."""

_TEXT: Final = ("a string", lambda kind: isinstance(kind, sql.StringType))
_COLUMNS: Final[dict[str, tuple[str, Callable[[sql.DataType], bool]]]] = {
    "token": _TEXT,
    "verdict": _TEXT,
    "delay": ("seconds or an interval", columns.is_seconds),
    "reason": _TEXT,
    "description": _TEXT,
}
_REQUIRED: Final = ("token", "verdict")

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "ack": (),
    "nack": ("delay", "reason"),
    "release": ("delay",),
    "terminate": ("reason", "description"),
}
"""The verdicts, and the columns that say more of each."""

_SETTLED: Final = (fifo.Status.OK, fifo.Status.ALREADY_SETTLED)
_DEAD: Final = "dead_lettered"
_LOST: Final = "lost"

_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_TOKENS: Final = pa.list_(pa.string())

Outcome: TypeAlias = tuple[Counter[str], list[str]]
"""Rows of a task by verdict, or by what became of it, and the tokens that were lost."""

Work: TypeAlias = Callable[[Iterable[Any]], Iterator[Outcome]]
"""The work of a task on its rows."""

_Alike: TypeAlias = tuple[int, str, tuple[tuple[str, Any], ...]]
"""Reservation, verdict, and the columns that say more."""


class Settled(NamedTuple):
    """The outcome of `settle`, in rows. `dead_lettered` are nacks that reached the delivery limit.

    `lost` rows had lost their lock before: they are redelivered, to any consumer; `lost_tokens`
    names them, or the first thousand of each task.
    """

    acked: int
    nacked: int
    released: int
    terminated: int
    dead_lettered: int
    lost: int
    lost_tokens: tuple[str, ...]


def settle(
    rows: DataFrame,
    url: str,
    queue: str,
    reservation: str,
    *,
    fail_on_loss: bool = True,
    **login: Unpack[Login],
) -> Settled:
    """Give each row its verdict: the columns `token`, `verdict` (`ack`, `nack`, `release`,
    `terminate`), and where there are such `delay`, `reason` and `description`.

    A row without a verdict stays as it is. Again without harm. Raises SourceError where locks were
    lost before their verdict, or with `fail_on_loss=False` counts and names them. `login`: options
    of the connection, such as `tokenFile` and `ca`.
    """
    where = f"queue {queue!r}, reservation {reservation!r}"
    chosen = _chosen(rows)
    work = _settling(with_login(url, login), queue, reservation, where)
    counts: Counter[str] = Counter()
    lost: list[str] = []
    for counted, tokens in _outcomes(chosen.where("verdict is not null"), work):
        counts += counted
        lost += tokens
    settled = Settled(
        counts["ack"],
        counts["nack"],
        counts["release"],
        counts["terminate"],
        counts[_DEAD],
        counts[_LOST],
        tuple(lost),
    )
    if settled.lost:
        text = (
            f"{where}: {settled.lost} rows had lost their lock before their verdict: they are"
            f" redelivered; their tokens: {', '.join(lost[:10])}{', ...' if len(lost) > 10 else ''}"
        )
        if fail_on_loss:
            raise SourceError(f"{text}; fail_on_loss=False only counts and names them")
        _log.warning(text)
    return settled


def _outcomes(rows: DataFrame, work: Work) -> Iterable[Outcome]:
    """Run the work in the tasks of a job."""
    if not type(rows).__module__.startswith("pyspark.sql.connect"):
        return rows.rdd.mapPartitions(work).collect()  # mapInArrow would need pandas.

    def in_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = work(row for batch in batches for row in batch.to_pylist())
        for counts, lost in found:
            arrays = [pa.array([list(counts.items())], _COUNTS), pa.array([lost], _TOKENS)]
            yield pa.RecordBatch.from_arrays(arrays, ["counts", "lost"])

    # Connect has no RDDs, and needs pandas itself.
    schema = "counts map<string,bigint>, lost array<string>"
    found = rows.mapInArrow(in_arrow, schema).collect()
    return [(Counter(row["counts"]), row["lost"]) for row in found]


def _chosen(rows: DataFrame) -> DataFrame:
    """The columns of a verdict; refuses a DataFrame that lacks one, or has another type there."""
    for name in _REQUIRED:
        if name not in rows.columns:
            raise fifo.InvalidArgument(
                f"there is no column {name}: keep the token of a read, and add a verdict"
                f" ({', '.join(_FIELDS)})"
            )
    there = [field for field in rows.schema.fields if field.name in _COLUMNS]
    for field in there:
        wanted, fits = _COLUMNS[field.name]
        if not fits(field.dataType):
            raise fifo.InvalidArgument(
                f"column {field.name} must be {wanted}, not {field.dataType.simpleString()}"
            )
    return rows.select(*(field.name for field in there))


def _settling(url: str, queue: str, reservation: str, where: str) -> Work:
    """The work of a task."""

    def work(rows: Iterable[Row | dict[str, Any]]) -> Iterator[Outcome]:
        task = _Task(queue, reservation)
        waiting = (row.asDict() if isinstance(row, Row) else row for row in rows)
        with telling(where), fifo.blocking.connect(url) as client:
            while some := list(islice(waiting, limits.VERDICTS)):
                task.settle(client, some)
        yield task.counts, task.lost

    return work


class _Task:
    """Settles the rows of one partition, those that are alike together."""

    def __init__(self, queue: str, reservation: str) -> None:
        self._queue = queue
        self._reservation = reservation
        self._opened: dict[int, Opened] = {}
        self.counts: Counter[str] = Counter()
        self.lost: list[str] = []

    def settle(self, client: BlockingClient, rows: Iterable[dict[str, Any]]) -> None:
        """Settle some rows: those that are alike in one request, and several requests at once."""
        alike = self._alike(rows)
        with ThreadPoolExecutor(limits.SETTLES_UNDER_WAY) as pool:
            answers = pool.map(lambda one: self._ask(client, *one), alike.items())
            for (consumer, verdict, _), found in zip(alike, answers, strict=True):
                for one in found:
                    self._count(consumer, verdict, one)

    def _alike(self, rows: Iterable[dict[str, Any]]) -> dict[_Alike, list[int]]:
        alike: dict[_Alike, list[int]] = {}
        for row in rows:
            verdict = row["verdict"]
            if verdict not in _FIELDS:
                raise SourceError(
                    f"token {row['token']}: {str(verdict)[:40]!r} is no verdict: use one of"
                    f" {', '.join(_FIELDS)}, or null"
                )
            consumer, token = columns.parse_token(row["token"] or "")
            more = tuple((name, row.get(name)) for name in _FIELDS[verdict])
            alike.setdefault((consumer, verdict, more), []).append(token)
        return alike

    def _ask(
        self, client: BlockingClient, what: _Alike, tokens: list[int]
    ) -> tuple[fifo.Verdict, ...]:
        consumer, verdict, more = what
        opened = self._opened.get(consumer, Opened(consumer, _LATEST))
        # One durable consumer asks one thing at a time.
        follower = Follower(client, self._queue, self._reservation, opened)
        given = {name: _given(value) for name, value in more if value is not None}
        found = follower.settle(verdict, tokens, **given)
        self._opened[consumer] = follower.opened
        return found

    def _count(self, consumer: int, verdict: str, one: fifo.Verdict) -> None:
        rows = one.last - one.first + 1
        if one.status in _SETTLED:
            self.counts[verdict] += rows
        elif one.status == fifo.Status.DEAD_LETTERED and verdict == "nack":
            self.counts[_DEAD] += rows
        else:
            self.counts[_LOST] += rows
            room = max(limits.LOST_NAMED - len(self.lost), 0)
            named = range(one.first, one.last + 1)[:room]
            self.lost += [columns.token_of(consumer, token) for token in named]


def _given(value: Any) -> Any:
    return value if isinstance(value, (str, timedelta)) else float(value)
