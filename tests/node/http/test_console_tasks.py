"""Five things that an operator has to do at night, with a real browser and at most four clicks."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import fifo
from node.server import Node
from tests.support.browser import needs_browser
from tests.support.cluster import LocalCluster, eventually, loopback_config
from tests.support.devtools import BrowserProcess, Person, chromium, person
from tests.support.shared import SharedCluster
from tests.support.shop import DEAD, fill_dead_letters, holding
from tests.support.users import EVERYTHING, user

pytestmark = [pytest.mark.slow, needs_browser]

CLICKS_MAX = 4


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserProcess]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@asynccontextmanager
async def operator(browser: BrowserProcess, node: Node) -> AsyncIterator[Person]:
    """Someone at `/` of this node; the task has to be done in few clicks, without a complaint of
    the browser, and nothing but the node was asked."""
    async with person(browser) as found:
        await found.sees(1440, 900)
        await found.opens(f"http://{node.me.http}/")
        await found.reads("Needs attention")
        yield found
        assert found.clicks <= CLICKS_MAX
        assert found.complaints == []
        elsewhere = [one for one in found.asked if not one.startswith(f"http://{node.me.http}/")]
        assert elsewhere == []


async def test_a_which_node_stops_publishing_why_and_since_when(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    small, other = shared_cluster.followers()
    alarms = small.broker.alarms
    before = alarms.disk_low_bytes
    try:
        alarms.disk_low_bytes = 1 << 60
        await eventually(lambda: leader.broker.alarms.refusal)
        async with operator(browser, other) as ann:
            await ann.reads(
                "Publishing is refused:", f"the disk of {small.me.name} is low:", "Since ", ", for "
            )
            alarms.disk_low_bytes = before
            await ann.until("!document.body.innerText.includes('Publishing is refused')")
            assert ann.clicks == 0
    finally:
        alarms.disk_low_bytes = before


async def test_b_who_holds_order_4711_for_how_long_and_taking_it_back(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    await shared_cluster.leader()
    async with (
        holding(shared_cluster.url),
        operator(browser, shared_cluster.followers()[0]) as ann,
        fifo.connect(shared_cluster.url) as client,
    ):
        await ann.clicks_on("orders")
        await ann.clicks_on("#find", css=True)
        await ann.until("document.activeElement.id === 'find'")
        await ann.types("4711")
        await ann.presses("Enter")
        await ann.reads("key 4711", "held by shop-worker-3")
        assert re.search(r"(\d s|1 min) left", await ann.js("document.body.innerText"))
        held = (await client.find("orders", key="4711")).messages[0]
        assert held.place.client == "shop-worker-3"
        await ann.clicks_on(".found .buttons button", css=True)
        await ann.reads("the holder is notified that its lock is lost")
        await ann.clicks_on("Take it back")
        await ann.reads("was taken back from shop-worker-3")
        again = (await client.find("orders", key="4711")).messages[0]
        assert again.place.version != held.place.version


async def test_c_three_of_nine_hundred_dead_letters_then_ten_then_the_rest_at_fifty_a_second(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url) as client:
        await fill_dead_letters(client)
        async with operator(browser, leader) as ann:
            await ann.clicks_on(".list a[href='#/dead/payments.dlq']", css=True)
            await ann.reads(f"{DEAD} dead letters: PaymentTimeout")
            letters = "document.querySelectorAll('.letters .message').length"
            assert await ann.until(letters) == 3
            await ann.clicks_on("Redrive …")
            await ann.reads(f"{DEAD} dead letters match (a dry run) and go to payments")
            await ann.clicks_on("Redrive 10 first")
            await ann.reads("10 messages moved of 10")
            await ann.clicks_on("Redrive the other 890 at 50 a second")
            await ann.reads("redrive running")
            redrive = (await client.queue("payments.dlq")).redrive
            assert redrive is not None
            assert (redrive.rate_per_s, redrive.filter["exception_type"]) == (50, "PaymentTimeout")
            assert (await client.queue("payments")).ready >= 10
            await client.cancel_redrive("payments.dlq")


async def test_d_a_poisoned_queue_stops_its_first_hundred_go_aside_and_it_goes_on(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url) as client:
        await client.declare(fifo.QueueSpec("emails"))
        await client.publish_many("emails", [b"poison"] * 250)
        async with operator(browser, leader) as ann:
            await ann.clicks_on("emails")
            await ann.clicks_on("Set messages aside …")
            await ann.clicks_on("Pause emails and move 100")
            await ann.reads("100 messages of emails moved to emails.aside.")
            assert (await client.queue("emails")).paused
            await ann.clicks_on("Resume emails")
            await ann.reads("emails delivers again; 100 messages set aside in emails.aside")
        queue, aside = await client.queue("emails"), await client.queue("emails.aside")
        assert (queue.paused, queue.ready, aside.ready) == (False, 150, 100)


async def test_e_is_it_safe_to_restart_a_node_and_handing_its_leadership_over(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    leader = await shared_cluster.leader()
    name = leader.me.name
    async with operator(browser, shared_cluster.followers()[0]) as ann:
        await ann.reads("safe")
        await ann.clicks_on(f"{name}: restart: hand over first")
        await ann.reads(f"{name} does not lead")
        await ann.clicks_on("Hand leadership to ")
        word = "document.querySelector('#dialog .word.ok')?.innerText"
        assert await ann.until(word) == "safe"
        await ann.until("document.querySelectorAll('#dialog .steps .done').length === 3")
        assert not leader.leads
        others = shared_cluster.leading()
        assert others is not None
        assert others.me.name != name


@pytest.mark.cluster
async def test_a_log_in_stays_in_memory_and_shows_what_the_user_may_do(
    tmp_path: Path, browser: BrowserProcess
) -> None:
    """A name of a queue is text, whatever it looks like."""
    users = (user("ann", monitor=True, **EVERYTHING), user("bob", consume=("orders",)))
    cluster = LocalCluster(replace(loopback_config(tmp_path, 1), users=users))
    name = "<img src=x onerror=alert(1)>"
    try:
        await cluster.start()
        node = await cluster.leader()
        url = cluster.url.replace("fifo://", "fifo://ann:ann-password@")
        async with fifo.connect(url) as client:
            for queue in ("orders", name):
                await client.declare(fifo.QueueSpec(queue))
        async with person(browser) as ann:
            await ann.opens(f"http://{node.me.http}/#/queues")
            for secret, says in (("wrong", "wrong user or secret"), ("ann-password", name)):
                await ann.clicks_on("#user", css=True)
                await ann.js(
                    "for (const id of ['user', 'password']) "
                    "document.getElementById(id).value = ''; 0"
                )
                await ann.types("ann")
                await ann.clicks_on("#password", css=True)
                await ann.types(secret)
                await ann.presses("Enter")
                await ann.reads(says)
            assert await ann.js("localStorage.length + sessionStorage.length") == 0
            assert await ann.js("document.cookie") == ""
            assert await ann.js("document.querySelectorAll('main img').length") == 0
        async with person(browser) as bob:
            await bob.opens(f"http://{node.me.http}/#/queue/orders")
            await bob.clicks_on("#token", css=True)
            await bob.types("bob-token")
            await bob.presses("Enter")
            await bob.reads("No message is locked.")
            offered = await bob.js("[...document.querySelectorAll('main button')].length")
            assert offered == 0, "no action without its permission"
    finally:
        await cluster.stop()


VIOLATIONS = """(async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.map(v => v.id + ": " + v.nodes.map(n => n.html).slice(0, 3).join(" | "));
})()"""
AXE = Path(__file__).parent / "axe" / "axe.min.js"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_no_violation_on_any_page(
    shared_cluster: SharedCluster, browser: BrowserProcess, dark: bool
) -> None:
    leader = await shared_cluster.leader()
    async with (
        fifo.connect(shared_cluster.url) as client,
        holding(shared_cluster.url),
        person(browser) as ann,
    ):
        await fill_dead_letters(client, 5)
        await client.pause("payments")
        await client.publish("orders", b"later", delay=60)
        for width in (1440, 390):
            await ann.sees(width, 900, dark=dark)
            for page, shows in (
                ("", "Needs attention"),
                ("queues", "payments.dlq"),
                ("queue/orders", "shop-worker-3"),
                ("dead", "payments.dlq"),
                ("dead/payments.dlq", "PaymentTimeout"),
                ("raft", "elected, because"),
                ("audit", "pause payments"),
            ):
                await ann.opens(f"http://{leader.me.http}/#/{page}")
                await ann.reads(shows)
                await ann.js(AXE.read_text(encoding="utf-8") + ";0")
                assert await ann.js(VIOLATIONS) == [], (page, width)
                wide = "document.documentElement.scrollWidth - innerWidth"
                assert await ann.js(wide) <= 0, (page, width)
                last = "document.querySelector('nav a:last-child').getBoundingClientRect().right"
                assert await ann.js(last) <= width, "it is cut"


async def test_an_update_keeps_every_element_focus_and_scroll(
    shared_cluster: SharedCluster, browser: BrowserProcess
) -> None:
    """A thousand queues: a second's update touches what has changed, and makes nothing anew."""
    leader = await shared_cluster.leader()
    async with fifo.connect(shared_cluster.url) as client, person(browser) as ann:
        for number in range(120):
            await client.declare(fifo.QueueSpec(f"q{number:03}"))
        await ann.sees(1440, 900)
        await ann.opens(f"http://{leader.me.http}/#/queues")
        await ann.reads("120 queues", "q099")
        await ann.presses("/")
        await ann.types("q01")
        await ann.until("document.querySelectorAll('tbody tr').length === 10")
        await ann.js(
            "window.rows = [...document.querySelectorAll('tbody tr')]; window.made = 0;"
            "new MutationObserver(all => { window.made += all.reduce((n, m) =>"
            " n + [...m.addedNodes].filter(x => x.nodeType === 1).length, 0); })"
            ".observe(document.querySelector('main'), {childList: true, subtree: true}); 0"
        )
        await client.publish("q011", b"x")
        await ann.until("document.querySelectorAll('td.ready')[1].innerText === '1'")
        assert await ann.js("window.made") == 0
        same = "[...document.querySelectorAll('tbody tr')].every((r, n) => r === window.rows[n])"
        assert await ann.js(same)
        assert await ann.js("document.activeElement.type") == "search"
        assert json.loads(await ann.js("JSON.stringify(document.activeElement.value)")) == "q01"
