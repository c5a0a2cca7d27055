"""A batch taken from a queue for a block of a program: acked when the block ends well.

Owns `taken`. Spark does not tell a reader that an action has succeeded; the end of a `with` block
does. What a reservation is, and how it is read, is the business of `reservation` and `reading`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

import fifo
from fifo.spark import columns, limits, options
from fifo.spark.bodies import typed
from fifo.spark.errors import SourceError, telling
from fifo.spark.reservation import Followers, Keeper, Reservation

_log = logging.getLogger("fifo.spark")


@contextmanager
def taken(
    spark: SparkSession, url: str, queue: str, reservation: str, **more: str | float | bool
) -> Iterator[DataFrame]:
    """Reserve messages as a DataFrame, the same for every action; `more` are options of a read.

    They are renewed while the block runs, acked when it ends well, and given back uncounted when it
    raises. After a crash the next block of that name has the same ones, while their lock lasts.
    Raises SourceError at the end where locks were lost: those messages are redelivered.
    """
    texts = {name: str(value) for name, value in more.items()}
    given = {**texts, "url": url, "queue": queue, "reservation": reservation, "ackMode": "manual"}
    settings = options.parse(given, options.BATCH_READ)
    where = f"{settings.where()}, reservation {reservation!r}"
    with fifo.blocking.connect(settings.url) as client:
        with telling(where):
            most = settings.max_messages or limits.HELD_MAX
            held = Reservation(client, settings, most)
            if not held.held((), held.last):
                held.take(most)
        if not held.held((), held.last):
            # A read would take what has come since, and each action something else.
            plain = columns.read_schema(binary_keys=settings.binary_keys, names=settings.columns)
            schema = typed.read_schema(plain, settings.body)
            yield spark.createDataFrame([], schema)
            return
        follower = Followers(client, queue, reservation, held.opened)
        with Keeper(follower, held.lock_s):
            try:
                yield spark.read.format("fifo").options(**given).load()
            except BaseException:
                _give_back(follower, where)
                raise
            with telling(where):
                lost = follower.ack(held.last)
    if lost:
        raise SourceError(
            f"{where}: the locks of {lost} messages ran out before their ack: they are redelivered,"
            " though this block has ended well; raise the option lock or maxLock"
        )


def _give_back(follower: Followers, where: str) -> None:
    """Release all; where that fails the locks run out, and the block's own error is the news."""
    try:
        follower.forget()
    except fifo.FifoError as error:
        _log.warning("%s: not released, so its locks have to run out: %s", where, error)
