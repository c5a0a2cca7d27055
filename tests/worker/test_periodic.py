"""Periodic tasks on a cluster: each due time once, by the active worker, and what was missed."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

import fifo
import fifo.testing
from fifo.worker.periodic import CatchUp
from tests.worker.conftest import running

pytestmark = pytest.mark.slow


def clock(
    url: str, seen: list[str], when: str | float = 60, catch_up: CatchUp = "last"
) -> fifo.App:
    """An app with one periodic task."""
    app = fifo.App(url)

    @app.periodic(when, catch_up=catch_up, arguments={"what": "report"})
    @app.task("reports")
    async def report(what: str, message: fifo.Message) -> None:
        seen.append(message.headers["due"][11:16])

    return app


def minutes(seen: list[str]) -> list[int]:
    """Minutes of the day, from the first of them."""
    found = [60 * int(one[:2]) + int(one[3:]) for one in seen]
    return [(one - found[0]) % 1440 for one in found]


async def test_each_due_time_is_sent_once_by_three_workers() -> None:
    seen: list[str] = []
    async with fifo.testing.cluster(nodes=3) as cluster, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(running(clock(cluster.url, seen), cluster))
        await cluster.advance(minutes=3)
        cluster.kill_leader()
        await cluster.advance(minutes=3)
    assert minutes(seen) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("last", [0, 1, 5, 6]), ("all", [0, 1, 2, 3, 4, 5, 6]), ("none", [0, 1, 6])],
)
async def test_missed_due_times_are_caught_up_by_the_rule(
    catch_up: CatchUp, expected: list[int], cluster: fifo.testing.Cluster
) -> None:
    seen: list[str] = []
    async with running(clock(cluster.url, seen, 60, catch_up), cluster):
        while len(seen) < 2:
            await cluster.advance(seconds=1)
    await cluster.advance(minutes=4, seconds=10)
    async with running(clock(cluster.url, seen, 60, catch_up), cluster):
        await cluster.advance(seconds=20)
        while minutes(seen)[-1] < 6:
            await cluster.advance(seconds=1)
    assert minutes(seen) == expected


async def test_the_schedule_of_older_code_ends_and_the_new_one_goes_on(
    cluster: fifo.testing.Cluster,
) -> None:
    old: list[str] = []
    new: list[str] = []
    async with running(clock(cluster.url, old, 60), cluster):
        await cluster.advance(minutes=2)
    assert len(old) == 2
    async with running(clock(cluster.url, new, 120), cluster):
        await cluster.advance(minutes=14)
        view = cluster.queue("reports.periodic").view
        assert view.messages == 1  # the next of the new schedule
    assert set(minutes(new)) <= set(range(0, 20, 2))
    assert len(new) == len(set(new)) >= 6


async def test_what_cannot_be_periodic_is_refused_where_it_is_written() -> None:
    app = fifo.App("fifo://127.0.0.1:1")

    @app.task("reports")
    async def report(what: str) -> None: ...

    for when, zone, text in (
        ("* * *", "UTC", r"task report: cron '\* \* \*': has 3 fields"),
        ("@daily", "Europe/Bielefeld", "there is no time zone 'Europe/Bielefeld'"),
        (0.5, "UTC", "an interval is whole seconds, not 0.5"),
    ):
        with pytest.raises(fifo.BadTask, match=text):
            app.periodic(when, zone=zone)(report)
    app.periodic("@daily")(report)
    with pytest.raises(fifo.InvalidArgument, match="report: argument 'what' is missing"):
        app.check()
