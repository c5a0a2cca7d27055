"""Spans by the messaging conventions of OpenTelemetry, through every hand that a message goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import fifo
import fifo.blocking
import fifo.testing
from fifo.client import tracing
from fifo.words import bounds
from tests.support.pytest_ids import ROOT

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

DEAD = fifo.QueueSpec("dead")
ORDERS = fifo.QueueSpec("orders", dead_letter="dead", max_deliveries=2, nack_backoff="fixed:1s")


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The spans that a program's own exporter gets."""
    provider, made = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(made))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", lambda *names, **_: provider.get_tracer(*names))
    yield made
    provider.shutdown()


def by_name(exporter: Any) -> dict[str, Any]:
    """The last span of each name."""
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_a_message_has_a_span_for_each_hand_that_it_goes_through(exporter: Any) -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(DEAD)
        await client.declare(ORDERS)
        confirm = await client.publish("orders", b"one", headers={"shop": "7"})
        (message,) = await client.get("orders")
        assert message.headers["shop"] == "7"
        async with message.process():
            inside = trace.get_current_span().get_span_context().span_id
        await cluster.advance()
    spans = by_name(exporter)
    send, process, ack = spans["send orders"], spans["process orders"], spans["ack orders"]
    kinds = [span.kind for span in (send, process, ack)]
    assert kinds == [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CLIENT]
    assert message.headers["traceparent"].split("-")[1:3] == [
        f"{send.context.trace_id:032x}",
        f"{send.context.span_id:016x}",
    ]
    assert process.parent.span_id == send.context.span_id
    assert [link.context.span_id for link in process.links] == [send.context.span_id]
    assert inside == process.context.span_id == ack.parent.span_id
    types = [span.attributes["messaging.operation.type"] for span in (send, process, ack)]
    assert types == ["send", "process", "settle"]
    for span in (send, process, ack):
        assert span.attributes["messaging.system"] == "fifo"
        assert span.attributes["messaging.destination.name"] == "orders"
        assert span.attributes["messaging.message.id"] == str(confirm.id)
        assert span.attributes["server.port"] == 7101
        assert span.status.status_code is StatusCode.UNSET


async def test_a_handler_that_fails_has_a_span_that_says_so(exporter: Any) -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(DEAD)
        await client.declare(ORDERS)
        await client.publish("orders", b"one")
        (message,) = await client.get("orders")
        async with message.process():
            raise ValueError("no stock")
    span = by_name(exporter)["process orders"]
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        "ValueError: no stock",
    )
    assert span.attributes["error.type"] == "ValueError"
    assert [event.name for event in span.events] == ["exception"]
    assert by_name(exporter)["nack orders"].parent.span_id == span.context.span_id


async def test_the_context_survives_death_and_redrive(exporter: Any) -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(DEAD)
        await client.declare(ORDERS)
        await client.publish("orders", b"one")
        for _ in range(2):
            (message,) = await client.get("orders")
            await message.nack()
            await cluster.advance(seconds=2)
        send = by_name(exporter)["send orders"].context
        (dead,) = cluster.queue("orders").dead
        assert dead.headers["traceparent"].split("-")[2] == f"{send.span_id:016x}"
        await client.redrive("dead")
        await cluster.advance(seconds=2)
        (message,) = await client.get("orders")
        async with message.process():
            pass
    process = by_name(exporter)["process orders"]
    assert process.context.trace_id == send.trace_id
    assert [link.context.span_id for link in process.links] == [send.span_id]


async def test_tasks_that_send_tasks_are_one_trace(exporter: Any) -> None:
    app = fifo.App()
    done: list[str] = []

    @app.task("first")
    async def first() -> None:
        await second.send()

    @app.task("second", runs="thread")
    def second() -> None:
        done.append(f"{trace.get_current_span().get_span_context().trace_id:x}")

    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        worker = fifo.Worker(app, client)
        async with worker:
            with trace.get_tracer("shop").start_as_current_span("order") as root:
                await first.send()
            await cluster.advance(seconds=1)
    assert done == [f"{root.get_span_context().trace_id:x}"]
    spans = by_name(exporter)
    assert spans["send second"].parent.span_id == spans["process first"].context.span_id


async def test_batches_have_one_span_and_every_message_its_context(exporter: Any) -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(DEAD)
        await client.declare(ORDERS)
        own = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        await client.publish_many("orders", [b"1", b"2"], headers=[None, own])
        messages = await client.get("orders", 2)
        send = by_name(exporter)["send orders"]
        assert send.attributes["messaging.batch.message_count"] == 2
        first, second = (message.headers["traceparent"] for message in messages)
        assert first.split("-")[2] == f"{send.context.span_id:016x}"
        assert second == own["traceparent"]
        client.ack_many(messages)
        await cluster.advance()
    acks = [span for span in exporter.get_finished_spans() if span.name == "ack orders"]
    assert [span.attributes["messaging.batch.message_count"] for span in acks] == [2]


def test_the_blocking_client_has_the_same_spans(exporter: Any) -> None:
    with fifo.testing.cluster() as cluster, fifo.blocking.connect(cluster.url) as client:
        client.declare(DEAD)
        client.declare(ORDERS)
        client.publish("orders", b"one")
        (message,) = client.get("orders")
        with message.process():
            inside = trace.get_current_span().get_span_context().span_id
        cluster.advance()
    spans = by_name(exporter)
    assert inside == spans["process orders"].context.span_id
    assert spans["process orders"].parent.span_id == spans["send orders"].context.span_id


async def test_headers_without_room_for_a_context_are_sent_as_they_are(exporter: Any) -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("orders"))
        most = {"a": "x" * (bounds.HEADERS_BYTES_MAX - 40)}
        await client.publish("orders", b"one", headers=most)
        (message,) = await client.get("orders")
        assert dict(message.headers) == most


async def test_a_program_that_has_no_provider_makes_no_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    assert tracing.spans() is None


@pytest.mark.process
def test_a_program_without_opentelemetry_imports_nothing_of_it() -> None:
    program = """
import asyncio, sys, fifo, fifo.testing
async def main():
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("orders"))
        await client.publish("orders", b"one")
        (message,) = await client.get("orders")
        async with message.process():
            assert type(client._settler).__name__ == "Settler"
asyncio.run(main())
print(*(name for name in sys.modules if name.startswith(("opentelemetry", "fifo.client.spans"))))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
