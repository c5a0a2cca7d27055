"""Messages shown, found and acted on from the command line."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import fifo
from node.cli.errors import USAGE
from tests.support.cluster import running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.node.cli.local import Done


@pytest.mark.cluster
async def test_an_operator_acts_on_one_message(cli: Callable[..., Done], tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        url = f"fifo://{(await cluster.leader()).me.client}"

        async def message(*words: str) -> Done:
            return await asyncio.to_thread(cli, "message", *words, "--url", url)

        async def move(*words: str) -> Done:
            return await asyncio.to_thread(cli, "move", "orders", "dlq", *words, "--url", url)

        async def ok(*words: str) -> Done:
            done = await message(*words)
            assert done.code == 0, done
            return done

        async with fifo.connect(url, name="worker-7") as client:
            await client.declare(fifo.QueueSpec("orders", dead_letter="dlq"))
            await client.declare(fifo.QueueSpec("scanned"))
            one = (await client.publish("orders", b"4711", key="c7")).id
            await client.get("orders")

            shown = (await ok("show", "orders", one, "--json")).json
            assert (shown["id"], shown["place"], shown["client"]) == (one, "locked", "worker-7")
            assert "locked" in (await ok("show", "orders", one)).out
            found = (await ok("find", "orders", "--key", "c7", "--json")).json
            assert ([each["id"] for each in found["messages"]], found["after"]) == ([one], 0)
            assert (await ok("find", "orders", "--place", "delayed")).err == "none\n"

            # A scan is of one index, and goes on in the same view.
            await client.publish_many("scanned", [b"%d" % n for n in range(5)])
            first = (await ok("scan", "scanned", "--limit", "2", "--json")).out.splitlines()
            assert [json.loads(line).get("body") for line in first] == ["0", "1", None]
            await client.purge("scanned")
            cursor = json.loads(first[-1])["cursor"]
            rest = (await ok("scan", "scanned", "--cursor", cursor, "--json")).out.splitlines()
            assert [json.loads(line)["body"] for line in rest] == ["2", "3", "4"]
            assert (await ok("scan", "scanned")).err == "none\n"
            wrong = await message("scan", "scanned", "--cursor", "x")
            assert (wrong.code, "'x' is not the cursor of a scan" in wrong.line) == (USAGE, True)
            table = (await ok("scan", "orders", "--state", "locked")).out
            assert "locked" in table
            assert "4711" in table

            # What destroys or disturbs has to be confirmed, and says what it is about.
            asked = await message("unlock", "orders", one)
            assert asked.code == USAGE
            assert f"message {one} of orders, locked by worker-7 for" in asked.line
            assert asked.line.endswith("confirm with --yes")
            would = (await ok("unlock", "orders", one, "--dry-run")).out
            assert "would be acted on (unlock)" in would
            assert (await client.message("orders", one)).place.place == "locked"
            done = await ok("unlock", "orders", one, "--delay", "1m", "--yes")
            assert (
                done.out
                == f"message {one} of orders is taken back from its holder; it was locked\n"
            )

            refused = await message("unlock", "orders", one, "--yes")
            assert refused.line.startswith("fifo: the message is not locked")
            done = await ok("retry", "orders", one, "--json")
            assert done.json == {"id": one, "queue": "orders", "action": "retry", "was": "delayed"}
            await ok("delay", "orders", one, "1h")
            await ok("terminate", "orders", one, "--reason", "poison")
            await ok("resend", "dlq", one, "--body", "fixed", "--header", "by=me")
            (back,) = await client.peek("orders")
            assert (back.body, back.key, back.headers) == (b"fixed", "c7", {"by": "me"})
            by_header = ("find", "orders", "--header", "by=me", "--json")
            assert [each["id"] for each in (await ok(*by_header)).json["messages"]] == [one]
            for wants, count in ((("--older-than", "1h"), 0), (("--header", "by=me"), 1)):
                counted = await move("--dry-run", *wants, "--json")
                assert counted.json == {"messages": count}
            done = await move("--header", "by=me")
            assert done.out == "1 message moved from orders to dlq\n"
            await ok("move", "dlq", one, "orders")
            copied = (await ok("copy", "orders", one, "dlq", "--body", "other", "--json")).json
            assert copied["copy"] != one
            await ok("move", "orders", one, "dlq")
            for each in (one, copied["copy"]):
                await ok("delete", "dlq", each, "--yes")
            gone = await message("cancel", "dlq", one, "--yes")
            assert gone.line == (
                f"fifo: queue 'dlq' has no message {one}, or not any more;"
                " find it: fifo message find QUEUE"
            )
            assert (await message("show", "dlq", "x")).code == USAGE
