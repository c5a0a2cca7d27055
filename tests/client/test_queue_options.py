"""Proves that client, command line and machine have the same options of a queue."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
import typer.testing

import fifo
from fifo.client.spec import changes_to_wire
from fifo.words.queue_options import BY_NAME
from node.cli import queue as queue_commands
from node.cli.main import app
from tests.support.shared import SharedCluster

EVERY_OPTION: dict[str, Any] = {
    "lock": 7,
    "max_lock": 70,
    "max_deliveries": 3,
    "dead_letter": "dlq",
    "dead_letter_expired": False,
    "dead_letter_overflow": True,
    "on_exhausted": "drop",
    "nack_backoff": "exponential:1s..8s*2",
    "timeout_backoff": "table:1s,5s",
    "count_timeouts": False,
    "ttl": 3600,
    "expires_unused": 7200,
    "max_length": 1000,
    "max_bytes": 1_000_000,
    "overflow": "drop_oldest",
    "ordering": "key",
    "priorities": True,
    "on_delay": "skip",
    "disconnect_grace": 5,
    "dedup_window": 60,
    "dedup_max": 10,
}
"""Each option of a queue with another value than its default."""


def of_the_machine(options: dict[str, Any]) -> dict[str, Any]:
    """Options as the machine names and counts them."""
    found = {}
    for name, value in options.items():
        wire_name = BY_NAME[name].wire_name
        found[wire_name] = value * 1000 if wire_name.endswith("_ms") else value
    return found


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_the_client_warns_that_publishing_is_no_use_of_a_queue(
    client: fifo.Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.declare(fifo.QueueSpec("brief"))
    await client.update("brief", ttl=60, expires_unused=None)
    assert "no use" not in caplog.text
    await client.update("brief", expires_unused=3600)
    assert caplog.text.count("publishing is no use of queue brief: without a consumer") == 1
    await client.declare(fifo.QueueSpec("short", expires_unused=3600))
    assert caplog.text.count("publishing is no use of queue short") == 1


def test_client_and_command_line_have_every_option_of_a_queue() -> None:
    assert set(EVERY_OPTION) == set(BY_NAME)
    for command in (queue_commands.declare, queue_commands.update):
        assert set(EVERY_OPTION) - set(inspect.signature(command).parameters) <= (
            {"ordering", "priorities"} if command is queue_commands.update else set()
        )


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_every_option_of_a_queue_arrives_by_client_and_command_line(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("one", **EVERY_OPTION))
    shown = (await client.queue("one")).spec
    wanted = of_the_machine(EVERY_OPTION)
    assert {name: shown[name] for name in wanted} == wanted
    await client.update("one", max_length=5, ttl=None, on_delay="block")
    shown = (await client.queue("one")).spec
    assert (shown["max_length"], shown["ttl_ms"], shown["on_delay"]) == (5, None, "block")

    words = "--lock 7s --max-lock 70s --max-deliveries 3 --dead-letter dlq --drop-expired"
    words += " --dead-letter-overflow --on-exhausted drop --nack-backoff exponential:1s..8s*2"
    words += " --timeout-backoff table:1s,5s --no-count-timeouts --ttl 1h --expires-unused 2h"
    words += " --max-length 1000 --max-bytes 1000000 --overflow drop_oldest --ordering key"
    words += " --priorities --on-delay skip --disconnect-grace 5s --dedup-window 60s"
    words += " --dedup-max 10"
    line = ["queue", "declare", "two", *words.split(), "--url", shared_cluster.url]
    runner = typer.testing.CliRunner()
    done = await asyncio.to_thread(runner.invoke, app, line)
    assert done.exit_code == 0, done.output
    shown = (await client.queue("two")).spec
    assert {name: shown[name] for name in wanted} == wanted
    line = ["queue", "show", "two", "--json", "--url", shared_cluster.url]
    done = await asyncio.to_thread(runner.invoke, app, line)
    assert json.loads(done.output)["spec"]["dedup_max"] == 10


def test_a_spec_carries_only_the_given_options() -> None:
    spec = fifo.QueueSpec(
        "orders",
        lock=30,
        max_deliveries=5,
        dead_letter="orders.dlq",
        nack_backoff=fifo.Exponential(min=1, max=60, multiplier=2),
        timeout_backoff="fixed:5s",
        ttl=timedelta(hours=1),
        count_timeouts=False,
    )
    assert spec.to_wire() == {
        "lock_ms": 30_000,
        "max_deliveries": 5,
        "dead_letter": "orders.dlq",
        "nack_backoff": "exponential:1s..1m*2",
        "timeout_backoff": "fixed:5s",
        "ttl_ms": 3_600_000,
        "count_timeouts": False,
    }
    assert changes_to_wire({"ttl": None, "max_length": 5}) == {"ttl_ms": None, "max_length": 5}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "q" * 256),
        ("lock", 0.5),
        ("lock", 301),
        ("max_lock", 7 * 86_400 + 1),
        ("disconnect_grace", 301),
        ("dedup_max", 1_000_001),
        ("nack_backoff", "fixed:1.2345s"),
        ("max_deliveries", 0),
        ("max_deliveries", True),
        ("dead_letter", ""),
        ("ordering", "random"),
        ("overflow", "explode"),
        ("ttl", 0),
        ("nack_backoff", lambda failures: 1),
        ("max_length", 1.5),
        ("priorities", 1),
    ],
)
def test_a_bad_field_of_a_spec_is_refused_at_once(field: str, value: Any) -> None:
    with pytest.raises(fifo.InvalidArgument):
        fifo.QueueSpec(**{"name": "orders", field: value})


def test_an_unknown_change_is_refused_by_name_with_the_nearest() -> None:
    with pytest.raises(fifo.InvalidArgument, match="colour: a queue has no such option; there are"):
        changes_to_wire({"colour": "red"})
    with pytest.raises(fifo.InvalidArgument, match="did you mean max_length"):
        changes_to_wire({"max_lenght": 5})


def test_the_fields_of_a_spec_are_the_rows_of_the_table() -> None:
    named = [item.name for item in fields(fifo.QueueSpec)]
    assert sorted(named) == sorted(["name", *BY_NAME])
    assert all(item.default is None for item in fields(fifo.QueueSpec)[1:])
    live = {name for name, option in BY_NAME.items() if option.changeable}
    assert set(fifo.QueueChanges.__annotations__) == live
