"""Rows of a reservation into a table that knows transactions: each once, however often they come.

Owns the transaction's name and number, which follow from the tokens, and the last look at the locks
before a commit. Which table it is, and how it commits, is the program's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Unpack

import fifo
from fifo.blocking import BlockingClient, BlockingPinnedView
from fifo.spark import columns, limits
from fifo.spark.errors import SourceError, telling
from fifo.spark.options import Login, with_login


class Transaction(NamedTuple):
    """The transaction of some rows: what Delta calls application id and version.

    The rows of a repeated batch have the same one; those of later batches have a greater version,
    whatever became of the checkpoint.
    """

    application: str
    version: int


def transaction(
    url: str, queue: str, reservation: str, tokens: Iterable[str], **login: Unpack[Login]
) -> Transaction:
    """Return the transaction of the rows with these tokens, right before its commit.

    Raises SourceError where the lock of one of them is lost, which is redelivered: rows that are
    committed then would come twice. `login`: options of the connection, such as `tokenFile`.
    """
    where = f"queue {queue!r}, reservation {reservation!r}"
    consumer, wanted = _of_one(tokens, where)
    with telling(where), fifo.blocking.connect(with_login(url, login)) as client:
        lost = sorted(wanted - _locked(client, queue, consumer))
    if lost:
        named = ", ".join(columns.token_of(consumer, token) for token in lost[:10])
        raise SourceError(
            f"{where}: the locks of {len(lost)} of {len(wanted)} rows are lost, so that they are"
            f" redelivered, or the rows have had a verdict: {named}"
            f"{', ...' if len(lost) > 10 else ''}; do not commit them"
        )
    return Transaction(f"fifo/{queue}/{reservation}/{consumer}", max(wanted))


def _of_one(tokens: Iterable[str], where: str) -> tuple[int, set[int]]:
    """The reservation's number, and the rows' places in it."""
    pairs = [columns.parse_token(one) for one in tokens]
    consumers = {consumer for consumer, _ in pairs}
    if len(consumers) != 1:
        raise SourceError(
            f"{where}: the tokens of {len(consumers)} consumers: give those of one batch, which has"
            f" rows, and of {limits.HELD_MAX} at most (option maxRowsPerTrigger)"
        )
    return consumers.pop(), {token for _, token in pairs}


def _locked(client: BlockingClient, queue: str, consumer: int) -> set[int]:
    """All tokens that the reservation holds."""
    view = client.pin(lease=limits.SCAN_LEASE_S)
    try:
        return {token for one, token in _locks(view, queue) if one == consumer}
    finally:
        view.leave()


def _locks(view: BlockingPinnedView, queue: str) -> Iterable[tuple[int | None, int]]:
    after: int | None = 0
    while after is not None:
        page = view.page(
            queue, after=after, limit=limits.SCAN_MESSAGES, state="locked", bodies=False
        )
        after = page.after or None
        for message in page.messages:
            yield message.consumer, message.token or 0
