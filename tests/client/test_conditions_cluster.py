"""Conditions on messages that are looked for: the node looks at them, and sends nothing else.

A node of 0.1.0 ignores what it does not know of a request, so the client looks once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

import fifo
from fifo.wire import Frame
from fifo.wire.messages import Message, Peeked
from fifo.wire.operating import Find
from fifo.wire.pins import Page, Paged
from node.broker import limits
from tests.client.test_dead_letters_cluster import bury, failed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(60),
    pytest.mark.fifo_cluster(nodes=3),
]

Ask = Callable[..., Awaitable[Frame]]


class Wire:
    """A connection whose answers are counted. `old`: the node knows no more than one of 0.1.0."""

    def __init__(self, ask: Ask, *, old: bool = False) -> None:
        self._ask = ask
        self.old = old
        self.counts: list[int] = []

    async def __call__(self, request: Message, *rest: Any, **more: Any) -> Frame:
        if self.old and isinstance(request, Find):
            request = replace(
                request, exception_type=None, stack_line=None, headers=(), published_by_ms=0
            )
        elif self.old and isinstance(request, Page):
            request = replace(request, stack_line=None, published_by_ms=0)
        frame = await self._ask(request, *rest, **more)
        if isinstance(frame.message, Peeked | Paged):
            self.counts.append(frame.message.count)
        return frame


def ms(moment: datetime) -> int:
    """A time in milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


async def buried(client: fifo.Client) -> str:
    """Two letters of a ValueError, three of a KeyError, one message with headers; the line of the
    KeyErrors' stack, which lies in the log."""
    await client.declare(fifo.QueueSpec("orders", dead_letter="dlq"))
    await bury(client, ValueError("no"), 2)
    await bury(client, failed(KeyError, 3), 3)
    await client.publish("dlq", b"no letter", headers={"by": "me", "n": "1"})
    groups = {group.exception_type: group for group in await client.dead_letters("dlq")}
    return groups["KeyError"].stack_line


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
async def test_a_find_has_what_meets_its_conditions_from_any_node(
    client: fifo.Client, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    line = await buried(client)
    wire = Wire(client._session.call, old=old)
    monkeypatch.setattr(client._session, "call", wire)
    cases: tuple[tuple[dict[str, Any], int], ...] = (
        ({"exception_type": "ValueError"}, 2),
        ({"stack_line": line}, 3),
        ({"stack_line": "elsewhere"}, 0),
        ({"exception_type": "ValueError", "stack_line": line}, 0),
        ({"headers": {"by": "me", "n": "1"}}, 1),
        ({"headers": {"by": "me", "n": "2"}}, 0),
        ({"older_than": 86_400}, 0),
        ({"place": "ready", "exception_type": "KeyError"}, 3),
    )
    for wanted, count in cases:
        page = await client.find("dlq", limit=100, **wanted)
        assert (len(page.messages), page.after) == (count, 0), wanted
    assert wire.counts == ([6] * 8 if old else [count for _, count in cases])
    # The request names the time: what was published at it is meant, and nothing later.
    moments = sorted(one.published_at for one in (await client.find("dlq", limit=100)).messages)
    by_ms = ms(moments[2])
    frame = await client._session.call(Find("dlq", limit=100, published_by_ms=by_ms), None)
    assert isinstance(frame.message, Peeked)
    early = [one for one in moments if ms(one) <= by_ms]
    assert frame.message.count == (6 if old else len(early))


async def test_pages_of_few_go_on_behind_what_was_looked_at(client: fifo.Client) -> None:
    line = await buried(client)
    seen: list[str] = []
    after, pages = 0, 0
    while pages == 0 or after:
        page = await client.find("dlq", limit=1, after=after, stack_line=line)
        seen += [one.id for one in page.messages]
        after, pages = page.after, pages + 1
    assert (len(seen), len(set(seen))) == (3, 3)
    # A node looks at so many for a page, and no more.
    await client.declare(fifo.QueueSpec("many"))
    count = 2 * limits.FIND_LOOKED_MESSAGES + 200
    await client.publish_many("many", [b"x"] * count, headers=[{"n": f"{n}"} for n in range(count)])
    found: list[fifo.FoundMessage] = []
    after, pages = 0, 0
    while pages == 0 or after:
        page = await client.find("many", after=after, headers={"n": f"{count - 1}"})
        found += page.messages
        after, pages = page.after, pages + 1
    assert (len(found), pages) == (1, 3)
    moved = await client.move_found("many", "dlq", headers={"n": "7"})
    assert (moved.moved, moved.after > 0) == (1, True)


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
async def test_a_pinned_view_has_letters_of_a_line_and_what_is_old_enough(
    client: fifo.Client, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    line = await buried(client)
    async with await client.pin() as view:
        wire = Wire(view._link.ask, old=old)
        monkeypatch.setattr(view._link, "ask", wire)
        cases: tuple[tuple[dict[str, Any], int], ...] = (
            ({"stack_line": line}, 3),
            ({"stack_line": line, "bodies": False}, 3),
            ({"stack_line": line, "exception_type": "ValueError"}, 0),
            ({"older_than": 86_400}, 0),
        )
        for wanted, count in cases:
            page = await view.page("dlq", **wanted)
            assert (len(page.messages), page.after) == (count, 0), wanted
            assert all(one.dead_letter for one in page.messages)
        assert wire.counts == ([6, 6, 2, 6] if old else [3, 3, 0, 0])
        whole = (await view.page("dlq")).messages
        by_ms = ms(sorted(one.published_at for one in whole)[2])
        frame = await view._link.ask(Page(view._name, "dlq", published_by_ms=by_ms), 10.0)
        assert isinstance(frame.message, Paged)
        early = [one for one in whole if ms(one.published_at) <= by_ms]
        assert frame.message.count == (6 if old else len(early))
