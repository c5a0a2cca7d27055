"""Reports of writes, as messages of a queue: rows and duplicates of each job or batch.

Owns the report and its exactly-once sending. Spark's progress has the rows of a sink in
`numOutputRows`, and no place for the duplicates among them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import fifo
from fifo.spark.errors import telling
from fifo.spark.options import Settings


def report(
    settings: Settings, name: str, batch: int | None, rows: Sequence[int], duplicates: int
) -> None:
    """Send the report of a job, or of one batch of a query, where it is wanted; a batch's once.

    `rows` are those of each partition.
    """
    queue = settings.report_queue
    if queue is None:
        return
    found = {
        "queue": settings.queue,
        "name": name,
        "batch": batch,
        "rows": sum(rows),
        "duplicates": duplicates,
        "partitions": len(rows),
    }
    body = json.dumps(found, separators=(",", ":")).encode()
    with (
        telling(f"{settings.where()}, report to {queue!r}"),
        fifo.blocking.connect(settings.url) as client,
    ):
        if batch is None:
            client.publish(queue, body)
            return
        producer = client.open_producer(f"spark/{name}/report")
        producer.send_many(queue, [body], numbers=range(batch + 1, batch + 2)).result()
