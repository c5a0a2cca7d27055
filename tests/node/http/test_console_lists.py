"""The console beyond its first pages, and its actions on one message: in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

import fifo
from node.http import limits
from tests.support.browser import needs_browser
from tests.support.cluster import eventually
from tests.support.devtools import BrowserProcess, chromium, person
from tests.support.shared import SharedCluster
from tests.support.shop import DEAD, OTHERS_DEAD, fill_dead_letters

pytestmark = [pytest.mark.slow, needs_browser]

SHOWN = limits.QUEUE_ITEMS_SHOWN

TABS_MAX = 40
"""Presses of Tab on the way to anything of a page that has few rows."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserProcess]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


async def test_locks_and_delayed_messages_have_pages(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    locked, delayed = SHOWN + 30, 2 * SHOWN + 5
    async with fifo.connect(shared_cluster.url, name="holder") as client, person(browser) as ann:
        await client.declare(fifo.QueueSpec("orders", lock=300))
        await client.publish_many("orders", [b"x"] * locked)
        await client.publish_many("orders", [b"x"] * delayed, delays=[600.0] * delayed)
        async with client.consume("orders", prefetch=locked) as messages:
            for _ in range(locked):
                assert await messages.next(timeout=5) is not None
            await ann.sees(1440, 900)
            await ann.opens(f"http://{leader.me.http}/#/queue/orders")
            await ann.reads(f"1 to {SHOWN} of {locked}", f"1 to {SHOWN} of {delayed}")
            held = "[...document.querySelectorAll('.locks tbody th')].map(e => e.innerText)"
            first = await ann.js(held)
            await ann.clicks_on("[aria-label='Pages of locks'] button:last-child", css=True)
            await ann.reads(f"{SHOWN + 1} to {locked} of {locked}")
            second = await ann.js(held)
            assert len(second) == 30
            assert not set(first) & set(second)
            await ann.clicks_on("[aria-label='Pages of delayed'] button:last-child", css=True)
            await ann.reads(f"{SHOWN + 1} to {2 * SHOWN} of {delayed}")
            await ann.clicks_on("[aria-label='Pages of delayed'] button:last-child", css=True)
            await ann.reads(f"{2 * SHOWN + 1} to {delayed} of {delayed}")
            assert await ann.js("document.querySelectorAll('.timeline i').length") == 5
            assert await ann.js("document.querySelectorAll('.due li').length") == 5
            await ann.clicks_on("[aria-label='Pages of locks'] button:first-child", css=True)
            await ann.reads(f"1 to {SHOWN} of {locked}", f"{delayed} of {delayed}")
            assert ann.complaints == []


async def test_a_queue_that_is_shown_is_pushed_also_its_end(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url) as client, person(browser) as ann:
        await client.declare(fifo.QueueSpec("orders"))
        await ann.sees(1440, 900)
        await ann.opens(f"http://{leader.me.http}/#/queue/orders")
        await ann.reads("No message waits for its time.")
        confirm = await client.publish("orders", b"x", delay=600)
        await ann.reads(str(confirm.id), "1 published")
        await client.delete("orders")
        await ann.reads("there is no queue 'orders'")
        await client.declare(fifo.QueueSpec("orders"))
        await ann.reads("No message waits for its time.")
        asked = "performance.getEntriesByType('resource').map(e => new URL(e.name).pathname)"
        assert "/console/feed/queue" not in await ann.js(asked)
        assert ann.complaints == []


async def test_a_page_without_a_place_for_a_stream_asks(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with (
        fifo.connect(shared_cluster.url) as client,
        person(browser) as ann,
        AsyncExitStack() as stack,
        aiohttp.ClientSession() as others,
    ):
        await client.declare(fifo.QueueSpec("orders"))
        url = f"http://{leader.me.http}/console/feed/stream"
        for _ in range(limits.CONSOLE_STREAMS_MAX):
            answer = await stack.enter_async_context(others.get(url))
            assert answer.status == 200
        await ann.sees(1440, 900)
        await ann.opens(f"http://{leader.me.http}/#/queue/orders")
        await ann.reads("No message waits for its time.")
        confirm = await client.publish("orders", b"x", delay=600)
        await ann.reads(str(confirm.id), "1 published")
        asked = "performance.getEntriesByType('resource').map(e => new URL(e.name).pathname)"
        assert "/console/feed/queue" in await ann.js(asked)


async def test_a_dead_letter_behind_hundreds_of_others_is_found_edited_and_resent(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url) as client, person(browser) as ann:
        await fill_dead_letters(client)
        await ann.sees(1440, 900)
        await ann.opens(f"http://{leader.me.http}/#/dead/payments.dlq")
        await ann.reads(f"{DEAD} dead letters: PaymentTimeout")
        await ann.clicks_on(f"{OTHERS_DEAD} ")
        await ann.reads(f"{OTHERS_DEAD} dead letters: JSONDecodeError", "not json")
        letters = "document.querySelectorAll('.letters .message').length"
        assert await ann.until(letters) == 3
        await ann.clicks_on("Show more")
        await ann.until(f"{letters} === 13")
        await ann.clicks_on("Edit and resend …")
        await ann.reads("at the end of payments")
        await ann.clicks_on("#body", css=True)
        await ann.js("document.getElementById('body').select(); 0")
        await ann.types('{"order": 1}')
        await ann.clicks_on("#headers", css=True)
        await ann.types("mended: by hand")
        await ann.clicks_on("Resend it")
        await ann.reads("begins anew in payments")
        (mended,) = await client.peek("payments", 10)
        assert json.loads(bytes(mended.body)) == {"order": 1}
        assert mended.headers == {"mended": "by hand"}
        await ann.reads(f"{OTHERS_DEAD - 1} dead letters: JSONDecodeError")
        # What was published here goes nowhere back, and no redrive of it would leave others out.
        await client.publish("payments.dlq", b"published here")
        await ann.reads("no dead letters")
        await ann.clicks_on(".groups li:last-child button", css=True)
        await ann.reads("1 message: no dead letters", "published here")
        assert not await ann.js("document.querySelector('.letters').innerText.includes('Redrive')")
        assert ann.complaints == []


async def test_a_message_is_copied_moved_and_delayed(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url) as client, person(browser) as ann:
        for name in ("orders", "aside"):
            await client.declare(fifo.QueueSpec(name))
        confirm = await client.publish("orders", b"as it is", key="4711", headers={"shop": "north"})
        await ann.sees(390, 844)
        await ann.opens(f"http://{leader.me.http}/#/queue/orders")
        await ann.reads("No message waits for its time.")
        await ann.clicks_on("#find", css=True)
        await ann.types(str(confirm.id))
        await ann.presses("Enter")
        await ann.clicks_on("Copy …")
        await ann.clicks_on("#target", css=True)
        await ann.types("aside")
        await ann.clicks_on("Publish the copy")
        await ann.reads(f"in aside is a copy of {confirm.id}")
        (copy,) = await client.peek("aside", 10)
        assert (bytes(copy.body), copy.key) == (b"as it is", "4711")
        assert copy.headers == {"shop": "north"}
        await ann.clicks_on("Delay …")
        await ann.clicks_on("Delay it")
        await ann.reads("is ready in 1 min", "postponed: ready in")
        await ann.clicks_on("Move …")
        await ann.clicks_on("Move it")
        await ann.reads("to which queue?")
        await ann.clicks_on("#target", css=True)
        await ann.types("aside")
        await ann.clicks_on("Move it")
        await ann.reads(f"{confirm.id} was moved to aside")
        assert [bytes(one.body) for one in await client.peek("aside", 10)] == [b"as it is"] * 2
        wide = "document.documentElement.scrollWidth - innerWidth"
        assert await ann.js(wide) <= 0


async def test_a_filter_is_saved_by_the_browser_and_forgotten(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url) as client, person(browser) as ann:
        for name in ("orders", "orders.eu", "bills"):
            await client.declare(fifo.QueueSpec(name))
        machine = leader.broker.host.machine
        await eventually(lambda: machine.has_queue("bills"))
        await ann.sees(1440, 900)
        await ann.opens(f"http://{leader.me.http}/#/queues")
        await ann.reads("3 queues")
        await ann.presses("/")
        await ann.types("orders")
        await ann.reads("2 of 3 queues")
        await ann.clicks_on("Save filter “orders”")
        await ann.opens("about:blank")
        await ann.opens(f"http://{leader.me.http}/#/queues")
        await ann.reads("3 queues")
        await ann.clicks_on("“orders”")
        await ann.reads("2 of 3 queues")
        assert await ann.js("document.querySelector('input[type=search]').value") == "orders"
        await ann.clicks_on("“orders”")
        await ann.until("!document.body.innerText.includes('of 3 queues')")
        await ann.js("localStorage.setItem('fifo.filters', '{\"no\": \"list\"}'); 0")
        await ann.clicks_on("Forget the filter “orders”")
        assert await ann.js("localStorage.getItem('fifo.filters')") == "[]"
        await ann.js("localStorage.setItem('fifo.filters', '{\"no\": \"list\"}'); 0")
        await ann.opens("about:blank")
        await ann.opens(f"http://{leader.me.http}/#/queues")
        await ann.reads("3 queues")
        assert ann.complaints == []


async def test_who_changed_what_is_read_page_by_page_and_comes_without_a_reload(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url, name="desk") as client, person(browser) as ann:
        for number in range(60):
            await client.declare(fifo.QueueSpec(f"made.{number:02}"))
        await client.update("made.00", max_length=9)
        await ann.sees(1440, 900)
        await ann.opens(f"http://{leader.me.http}/")
        await ann.reads("Needs attention")
        await ann.clicks_on("Audit")
        await ann.reads("update made.00", "max_length: none → 9", "desk", "declare made.59")
        rows = "document.querySelectorAll('.audit tbody tr').length"
        assert await ann.js(rows) == 50
        await ann.clicks_on("Show older changes")
        await ann.reads("declare made.00")
        shown = await ann.until(f"{rows} > 60 && {rows}")
        await client.pause("made.01")
        await ann.reads("pause made.01", "paused: false → true")
        assert await ann.js(rows) == shown + 1, "what was shown stays"
        await ann.clicks_on("#audit-queue", css=True)
        await ann.types("made.00")
        await ann.presses("Enter")
        await ann.until(f"{rows} === 2")
        assert ann.complaints == []


async def test_a_queue_is_found_and_paused_by_keyboard_alone(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url) as client, person(browser) as ann:
        for name in ("bills", "orders"):
            await client.declare(fifo.QueueSpec(name))
        await ann.sees(1440, 900)
        await ann.opens(f"http://{leader.me.http}/")
        await ann.reads("Needs attention")
        focused = "document.activeElement.innerText ?? ''"

        async def goes_to(text: str) -> None:
            """Press Tab until this is focused, and seen to be."""
            for _ in range(TABS_MAX):
                await ann.presses("Tab")
                if (await ann.js(focused)).startswith(text):
                    style = "getComputedStyle(document.activeElement).outlineStyle"
                    assert await ann.js(style) == "solid", text
                    return
            raise AssertionError(f"{text!r} has no focus after {TABS_MAX} presses of Tab")

        await ann.presses("2")
        await ann.reads("2 queues")
        await ann.presses("/")
        await ann.types("ord")
        await ann.reads("1 of 2 queues")
        await goes_to("orders")
        await ann.presses("Enter")
        await ann.reads("No message waits for its time.")
        await goes_to("Pause …")
        await ann.presses("Enter")
        await ann.reads("Pause orders?")
        await ann.presses("Escape")
        await ann.until("!document.getElementById('dialog').open")
        assert await ann.js(focused) == "Pause …", "where it was"
        await ann.presses("Enter")
        await ann.until(f"({focused}) === 'Pause orders'")
        await ann.presses("Enter")
        await ann.reads("orders is paused")
        assert (await client.queue("orders")).paused
        assert ann.clicks == 0
        assert ann.complaints == []
