"""A worker on the server's own code, in virtual time: each outcome settles its message by rule."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

import fifo
import fifo.testing
from fifo.worker import limits, logs
from tests.support.cluster import eventually
from tests.worker.conftest import running

pytestmark = pytest.mark.slow


@dataclass
class Order:
    id: int
    customer: str = "-"


async def test_a_task_runs_with_its_arguments_and_its_message(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)
    seen: list[tuple[Order, int, str | bytes | None]] = []

    @app.task("orders")
    async def ship(order: Order, message: fifo.Message, copies: int = 1) -> None:
        seen.append((order, copies, message.key))

    async with running(app, cluster):
        await ship.send(Order(1), key="customer-7")
        await ship.send(order=Order(2, "Ada"), copies=3)
        await cluster.advance()
    assert seen == [(Order(1), 1, "customer-7"), (Order(2, "Ada"), 3, None)]
    assert cluster.queue("orders").view.messages == 0


async def test_a_delay_is_the_brokers(cluster: fifo.testing.Cluster) -> None:
    app = fifo.App(cluster.url)
    at: list[float] = []

    @app.task("orders")
    async def ship() -> None:
        at.append(cluster.now)

    async with running(app, cluster):
        began = cluster.now
        await ship.send(delay=60)
        await cluster.advance(minutes=2)
    assert 60 <= at[0] - began < 62


async def test_an_app_sends_without_a_worker_and_declares_its_queue(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders", max_deliveries=7)
    async def ship(order: Order) -> None: ...

    with pytest.raises(fifo.ClientClosed, match="send inside of `async with app:`"):
        await ship.send(Order(1))
    async with app:
        await ship.send(Order(1))
    queue = cluster.queue("orders")
    assert (queue.view.ready, queue.view.spec["dead_letter"]) == (1, "orders.dead")
    assert queue.view.spec["max_deliveries"] == 7


async def test_a_failure_is_tried_again_by_the_tasks_own_backoff_and_logs_one_line(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)
    at: list[float] = []

    @app.task("orders", retry=fifo.Exponential(min=10, max=60), max_deliveries=4)
    async def ship() -> None:
        at.append(cluster.now)
        raise ValueError("no stock")

    async with running(app, cluster):
        await ship.send()
        await cluster.advance(minutes=5)
    assert [round(later - at[0]) for later in at] == [0, 10, 30, 70]
    (dead,) = cluster.queue("orders").dead
    assert dead.dead_letter is not None
    assert (dead.dead_letter.detail, dead.dead_letter.exception) == (
        "max_deliveries",
        "ValueError: no stock",
    )
    assert 'raise ValueError("no stock")' in (dead.dead_letter.stack or "")
    lines = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.getMessage() for line in lines] == [
        f"task ship failed, again in {delay} s ({failed} of 4): ValueError: no stock"
        for failed, delay in ((1, 10), (2, 20), (3, 40))
    ]
    assert not any(line.exc_info for line in lines)
    (last,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert last.exc_info is not None
    assert "is dead: max_deliveries: failed 4 of 4 times" in last.getMessage()


@pytest.mark.parametrize("runs", ["loop", "thread"])
async def test_an_error_of_many_lines_is_one_line_and_its_stack_is_the_programs_own(
    runs: Any, cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)

    def fail() -> None:
        raise ValueError("no\n  stock" + 1_000 * "!")

    async def ship() -> None:
        fail()

    task = app.task("orders", name="ship", runs=runs, retry=fifo.Fixed(1), max_deliveries=2)
    sent = task(ship) if runs == "loop" else task(fail)
    async with running(app, cluster):
        await sent.send()
        await eventually(lambda: len(cluster.queue("orders").dead) == 1, within=60)
    (planned,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    text = planned.getMessage()
    assert text.startswith("task ship failed, again in 1 s (1 of 2): ValueError: no stock!!!")
    assert (text.endswith("!..."), "\n" in text, len(text) < 1_100) == (True, False, True)
    (last,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert last.exc_info is not None
    stack = traceback.extract_tb(last.exc_info[2])
    assert not [one for one in stack if "fifo/worker" in one.filename]
    assert stack[-1].name == "fail"


async def test_a_line_of_the_json_log_names_the_task_and_its_message(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders", max_deliveries=1)
    async def ship() -> None:
        raise ValueError("no stock")

    async with running(app, cluster):
        sent = await ship.send()
        await cluster.advance(seconds=1)
    (record,) = (one for one in caplog.records if one.levelno == logging.ERROR)
    found = json.loads(logs.JsonFormatter().format(record))
    assert {name: found[name] for name in ("task", "message", "queue", "attempt", "level")} == {
        "task": "ship",
        "message": sent.id,
        "queue": "orders",
        "attempt": 1,
        "level": "error",
    }
    assert "ValueError: no stock" in found["exception"]


async def test_a_handler_chooses_the_delay_and_the_end(cluster: fifo.testing.Cluster) -> None:
    app = fifo.App(cluster.url)
    at: list[float] = []

    @app.task("orders")
    async def ship() -> None:
        at.append(cluster.now)
        if len(at) == 1:
            raise fifo.Retry(100)
        raise fifo.Terminal("sold out", "for good")

    async with running(app, cluster):
        await ship.send()
        await cluster.advance(minutes=2)
    assert round(at[1] - at[0]) == 100
    (dead,) = cluster.queue("orders").dead
    assert dead.dead_letter is not None
    assert (dead.dead_letter.detail, dead.dead_letter.description) == ("sold out", "for good")


async def test_a_body_that_does_not_fit_goes_to_the_dead_letter_queue_with_the_reason(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders")
    async def ship(order: Order) -> None: ...

    wrong = {
        b'{"order": {"id": "x"}}': "task ship: order.id: expected an integer, got 'x'",
        b"[1]": "task ship: the body is no object of arguments, but list",
        b"{}": "task ship: argument 'order' is missing",
        b'{"order": {"id": 1}, "more": 2}': "task ship: there is no argument 'more'; there are",
        b"{": "task ship: the body is no json: Expecting",
        b"\xff": "task ship: the body is no json: 'utf-8' codec",
        b"[" * 100_000: "task ship: the body is no json: maximum recursion depth",
    }
    async with running(app, cluster) as worker:
        for body in wrong:
            await worker.client.publish("orders", body, headers={"task": "ship"})
        await cluster.advance()
    dead = {one.body: one.dead_letter for one in cluster.queue("orders").dead}
    assert dead.keys() == wrong.keys()
    for body, text in wrong.items():
        letter = dead[body]
        assert letter is not None
        assert letter.detail == "arguments do not fit"
        assert (letter.description or "").startswith(text)


async def test_a_message_of_another_program_is_the_argument_of_the_queues_only_task(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)
    seen: list[Order] = []

    @app.task("orders")
    async def ship(order: Order, message: fifo.Message) -> None:
        seen.append(order)

    async with running(app, cluster) as worker:
        await worker.client.publish("orders", b'{"id": 7}')
        packed = b"\x81\xa2id\x08"
        await worker.client.publish(
            "orders", packed, headers={"content-type": "application/msgpack"}
        )
        await cluster.advance()
    assert seen == [Order(7), Order(8)]


async def test_a_message_of_an_unknown_task_waits_for_a_worker_that_knows_it(
    cluster: fifo.testing.Cluster,
) -> None:
    old, new = fifo.App(cluster.url), fifo.App(cluster.url)
    seen: list[int] = []

    @old.task("orders")
    async def ship(number: int) -> None: ...

    @new.task("orders")
    async def pack(number: int) -> None:
        seen.append(number)

    async with running(old, cluster):
        async with new:
            await pack.send(5)
        await cluster.advance(seconds=95)
        assert not seen
        async with running(new, cluster):
            await cluster.advance(minutes=1)
    assert seen == [5]


async def test_a_message_of_a_task_that_no_worker_knows_ends_in_the_dead_letter_queue(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders")
    async def ship(number: int) -> None: ...

    async with running(app, cluster) as worker:
        await worker.client.publish("orders", b"{}", headers={"task": "pack"})
        await cluster.advance(
            seconds=(limits.UNKNOWN_TASK_DELIVERIES + 1) * (limits.UNKNOWN_TASK_DELAY_SECONDS + 0.3)
        )
    (dead,) = cluster.queue("orders").dead
    assert dead.dead_letter is not None
    assert dead.dead_letter.detail == "unknown task"
    assert len(caplog.records) == limits.UNKNOWN_TASK_DELIVERIES


async def test_without_a_dead_letter_queue_the_message_stays(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)

    @app.task(fifo.QueueSpec("orders"))
    async def ship(number: int) -> None: ...

    async with running(app, cluster) as worker:
        await worker.client.publish("orders", b"{", headers={"task": "ship"})
        await cluster.advance(seconds=30)
        assert cluster.queue("orders").view.delayed == 1
    assert "has no dead-letter queue, so the message stays in it" in caplog.text


async def test_no_more_messages_than_the_concurrency_are_at_work(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)
    at_work = most = 0

    async def work() -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(1)
        at_work -= 1

    first = app.task("one", name="first")(work)
    second = app.task("two", name="second")(work)
    async with running(app, cluster, concurrency=3):
        for _ in range(6):
            await first.send()
            await second.send()
        await cluster.advance(seconds=10)
        assert cluster.queue("one").view.messages == cluster.queue("two").view.messages == 0
    assert most == 3


async def test_a_drain_ends_what_is_at_work_and_gives_back_the_rest_uncounted(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)
    done: list[int] = []

    @app.task("orders")
    async def ship(number: int) -> None:
        await asyncio.sleep(5)
        done.append(number)

    async with running(app, cluster, concurrency=2, prefetch=10) as worker:
        for number in range(6):
            await ship.send(number)
        await cluster.advance(seconds=1)
        assert worker.at_work == 2
        assert await worker.drain()
        await cluster.advance()
        queue = cluster.queue("orders")
        assert (queue.view.ready, queue.view.locked) == (4, 0)
        assert [(one.failures) for one in queue.messages] == [0] * 4
    assert done == [0, 1]


async def test_a_drain_releases_what_does_not_end_in_time(cluster: fifo.testing.Cluster) -> None:
    app = fifo.App(cluster.url)
    cleaned_up = False

    @app.task("orders")
    async def ship() -> None:
        nonlocal cleaned_up
        try:
            await asyncio.sleep(1000)
        finally:
            cleaned_up = True

    async with running(app, cluster) as worker:
        await ship.send()
        await cluster.advance(seconds=1)
        assert not await worker.drain(grace_s=3)
        await cluster.advance()
        (message,) = cluster.queue("orders").messages
        assert (message.failures, cleaned_up) == (0, True)


async def test_a_soft_time_limit_lets_the_handler_clean_up_and_counts(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)
    cleaned_up: list[float] = []

    @app.task("orders", soft_time_limit=5, max_deliveries=1)
    async def ship() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            cleaned_up.append(cluster.now)

    async with running(app, cluster):
        began = cluster.now
        await ship.send()
        await cluster.advance(seconds=10)
    assert round(cleaned_up[0] - began) == 6
    (dead,) = cluster.queue("orders").dead
    assert dead.dead_letter is not None
    assert dead.dead_letter.exception == "TimeLimit: over its soft time limit of 5 s"


async def test_a_hard_time_limit_waits_for_no_handler(cluster: fifo.testing.Cluster) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders", time_limit=5, max_deliveries=1)
    async def ship() -> None:
        for _ in range(20):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:  # a handler that does not listen
                continue

    async with running(app, cluster, concurrency=1):
        await ship.send()
        await ship.send()
        await cluster.advance(seconds=11)
        assert len(cluster.queue("orders").dead) == 2
        await cluster.advance(seconds=20)


async def test_dependencies_live_for_a_run_or_for_the_worker(cluster: fifo.testing.Cluster) -> None:
    app = fifo.App(cluster.url)
    story: list[str] = []

    async def database() -> AsyncIterator[str]:
        story.append("connect")
        yield "database"
        story.append("disconnect")

    def session() -> Iterator[str]:
        story.append("begin")
        yield "session"
        story.append("end")

    @app.task("orders")
    async def ship(
        number: int,
        db: Annotated[str, fifo.Depends(database, scope="worker")],
        opened: str = fifo.Depends(session),  # type: ignore[assignment]  # as FastAPI writes it
    ) -> None:
        story.append(f"{number} {db} {opened}")

    async with running(app, cluster, concurrency=1):
        await ship.send(1)
        await ship.send(2)
        await cluster.advance()
    assert story == [
        "connect", "begin", "1 database session", "end",
        "begin", "2 database session", "end", "disconnect",
    ]  # fmt: skip


async def test_middleware_stands_around_each_run(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    story: list[str] = []

    class Tells(fifo.Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def before(self, run: fifo.Run) -> None:
            story.append(f"{self.name} before {run.task} {run.arguments['number']}")
            if run.arguments["number"] == 3:
                raise fifo.Terminal("unlucky")

        async def after(self, run: fifo.Run, result: Any) -> None:
            story.append(f"{self.name} after {result}")
            raise OSError("of the middleware")

        async def error(self, run: fifo.Run, error: BaseException) -> None:
            story.append(f"{self.name} error {error}")

    app = fifo.App(cluster.url, middleware=[Tells("outer"), Tells("inner")])

    @app.task("orders", max_deliveries=1)
    async def ship(number: int) -> int:
        return 10 // number

    async with running(app, cluster, concurrency=1):
        for number in (5, 0, 3):
            await ship.send(number)
        await cluster.advance()
    assert story == [
        "outer before ship 5", "inner before ship 5", "inner after 2", "outer after 2",
        "outer before ship 0", "inner before ship 0",
        "inner error integer division or modulo by zero",
        "outer error integer division or modulo by zero",
        "outer before ship 3", "inner error unlucky", "outer error unlucky",
    ]  # fmt: skip
    assert len(cluster.queue("orders").dead) == 2
    assert caplog.text.count("a middleware failed") == 2


async def test_a_handler_that_exits_or_is_cancelled_from_within_fails_alone(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders", max_deliveries=1)
    async def ship(way: str) -> None:
        if way == "exit":
            raise SystemExit(3)
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with running(app, cluster, concurrency=1):
        await ship.send("exit")
        await ship.send("cancelled")
        await cluster.advance()
        letters = [one.dead_letter for one in cluster.queue("orders").dead]
        assert [letter and letter.exception for letter in letters] == [
            "SystemExit: 3",
            "CancelledError",
        ]


async def test_a_lost_lock_stops_the_handler(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)
    stopped: list[float] = []

    @app.task(fifo.QueueSpec("orders", lock=10, max_lock=20, max_deliveries=1, dead_letter="dead"))
    async def ship() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.append(cluster.now)

    async with running(app, cluster):
        began = cluster.now
        await ship.send()
        await cluster.advance(seconds=25)
        assert len(stopped) == 1
        assert 19 < stopped[0] - began < 22
    assert "stopped, for another worker may have it" in caplog.text


async def test_a_lost_leader_interrupts_no_task() -> None:
    async with fifo.testing.cluster(nodes=3) as cluster:
        app = fifo.App(cluster.url)
        done: list[int] = []

        @app.task("orders")
        async def ship(number: int) -> None:
            await asyncio.sleep(3)
            done.append(number)

        async with running(app, cluster):
            for number in range(5):
                await ship.send(number)
            cluster.kill_leader()
            await cluster.advance(seconds=15)
        assert sorted(done) == [0, 1, 2, 3, 4]


async def test_a_settlement_that_fails_is_never_an_ack(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders", max_deliveries=1)
    async def ship() -> None:
        await asyncio.sleep(1)
        raise ValueError("no stock")

    async with fifo.connect(cluster.url, max_ack_retries=1) as client, fifo.Worker(app, client):
        await ship.send()
        await cluster.advance(seconds=0.5)
        killed = cluster.kill_leader()
        while "could not be settled" not in caplog.text:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)
        cluster.start(killed)
        await cluster.advance(seconds=30)
    queue = cluster.queue("orders")
    assert queue.view.messages + len(queue.dead) == 1


async def test_an_explicit_queue_is_that_of_all_tasks_that_name_it(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders")
    async def first() -> None: ...

    @app.task(fifo.QueueSpec("orders", lock=77))
    async def second() -> None: ...

    @app.task("orders")
    async def third() -> None: ...

    with pytest.raises(fifo.BadTask, match="queue orders: another task says otherwise"):
        app.task(fifo.QueueSpec("orders", lock=78))
    async with app:
        await first.send()
    assert cluster.queue("orders").view.spec["lock_ms"] == 77_000
    assert {task.queue.lock for task in app.tasks.values()} == {77}


async def test_the_limit_of_a_queue_that_exists_is_its_own(cluster: fifo.testing.Cluster) -> None:
    app = fifo.App(cluster.url)
    attempts = 0

    @app.task("orders", retry=fifo.Fixed(1))
    async def ship() -> None:
        nonlocal attempts
        attempts += 1
        raise ValueError("no stock")

    async with fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("aside"))
        await client.declare(fifo.QueueSpec("orders", dead_letter="aside", max_deliveries=25))
    async with running(app, cluster):
        await ship.send()
        await cluster.advance(seconds=40)
    assert attempts == 25
    (dead,) = cluster.queue("orders").dead
    assert dead.dead_letter is not None
    assert "no stock" in (dead.dead_letter.stack or "")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 0}, "concurrency: must be from 1 to "),
        ({"concurrency": "4"}, "concurrency: must be from 1 to .*, not '4'"),
        ({"prefetch": 0}, "prefetch: must be from 1 to "),
    ],
)
async def test_a_wrong_option_of_a_worker_is_named(
    options: Any, text: str, cluster: fifo.testing.Cluster
) -> None:
    app = fifo.App()

    @app.task("orders")
    async def ship() -> None: ...

    with pytest.raises(fifo.InvalidArgument, match=f"^{text}"):
        async with running(app, cluster, **options):
            pass
    with pytest.raises(fifo.InvalidArgument, match=r"^app: must be a fifo\.App, not 'orders:app'"):
        async with running("orders:app", cluster):  # type: ignore[arg-type]  # wrong on purpose
            pass


async def test_a_worker_is_sent_messages_where_other_consumers_of_its_client_pull(
    cluster: fifo.testing.Cluster,
) -> None:
    app = fifo.App()
    ran: list[int] = []

    @app.task("orders")
    async def ship(number: int) -> None:
        ran.append(number)

    async with fifo.connect(cluster.url, pull=True) as client, fifo.Worker(app, client):
        await ship.send(1)
        await cluster.advance(seconds=1)
    assert ran == [1]


def test_a_soft_time_limit_of_a_thread_is_refused() -> None:
    app = fifo.App()
    with pytest.raises(fifo.BadTask, match="nothing interrupts a thread"):
        app.task("orders", runs="thread", soft_time_limit=1)(print)


async def test_a_drain_that_is_cut_short_from_the_start_releases_all(
    cluster: fifo.testing.Cluster,
) -> None:
    """As by two signals in a row: the first of its steps waits for the cluster."""
    app = fifo.App(cluster.url)

    @app.task("orders")
    async def ship() -> None:
        await asyncio.sleep(1000)

    async with running(app, cluster) as worker:
        await ship.send()
        await cluster.advance(seconds=1)
        draining = asyncio.create_task(worker.drain())
        await asyncio.sleep(0)
        draining.cancel()
        await asyncio.wait({draining})
        assert worker.at_work == 0
        await cluster.advance()
        (message,) = cluster.queue("orders").messages
        assert message.failures == 0


class Silent(fifo.Middleware):
    def before(self, run: fifo.Run) -> None:  # type: ignore[override]  # that is the mistake
        ...


def yields() -> Iterator[int]:
    yield 1


def needs(what: str) -> str:
    return what


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda f: f.App(middleware=[Silent()]), "Silent.before must be written with `async def`"),
        (lambda f: f.App(middleware=[Silent]), "is no object of a fifo.Middleware"),
        (lambda f: f.App(format="yaml"), "format: must be json or msgpack, not 'yaml'"),
        (lambda f: f.Depends(needs), "its parameter 'what' has no default"),
        (lambda f: f.App().task("orders")(yields), "a handler returns, and does not yield"),
        (lambda f: f.App().task("orders", runs="loop")(needs), "with `def`, which runs in 'thr"),
        (lambda f: f.App().task("orders", retries=3)(needs), "there is no option 'retries'"),
        (lambda f: f.App().task("orders", max_deliveries=0)(needs), "max_deliveries must be from"),
        (lambda f: f.App().task("orders", retry=3)(needs), "retry must be Fixed, Exponential"),
        (lambda f: f.App().task("orders", time_limit=0)(needs), "time_limit: must be above 0"),
        (lambda f: f.App().task(needs), "queue: must be a name or a fifo.QueueSpec, not functio"),
        (lambda f: f.App().periodic("@daily")(needs), "@app.periodic stands above @app.task"),
        (lambda f: f.App().check(), "the app has no tasks: write `@app.task"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make: Any, text: str) -> None:
    with pytest.raises(fifo.InvalidArgument) as refused:
        make(fifo)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("send", "text"),
    [
        (lambda task: task.send(), "ship: argument 'number' is missing"),
        (lambda task: task.send(1, 2, 3), "ship: takes 2 arguments, not 3"),
        (lambda task: task.send(1, number=2), "ship: argument 'number' is given twice"),
        (lambda task: task.send(1, colour=2), "ship: has no argument 'colour'; there are: number"),
        (
            lambda task: task.send(object()),
            "ship: arguments: object cannot be sent; send a data",
        ),
    ],
)
async def test_a_call_that_does_not_fit_is_refused_where_it_is_sent(
    send: Any, text: str, cluster: fifo.testing.Cluster
) -> None:
    app = fifo.App(cluster.url)

    @app.task("orders")
    async def ship(number: Any, copies: int = 1) -> None: ...

    async with app:
        with pytest.raises(fifo.InvalidArgument) as refused:
            await send(ship)
    assert text in str(refused.value)


async def test_a_dependency_that_cannot_be_ended_is_logged_and_ends_no_drain(
    cluster: fifo.testing.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = fifo.App(cluster.url)

    async def database() -> AsyncIterator[str]:
        yield "database"
        raise OSError("gone")

    @app.task("orders")
    async def ship(db: Annotated[str, fifo.Depends(database, scope="worker")]) -> None: ...

    async with running(app, cluster) as worker:
        await ship.send()
        await cluster.advance()
        assert await worker.drain()
    assert "a dependency could not be ended" in caplog.text
