"""Dead letters in groups, and a redrive of one of them, against real nodes."""

from __future__ import annotations

import asyncio

import pytest

import fifo
from fifo.words.stacks import LINE_BYTES_MAX, stack_line
from tests.support.cluster import passed

pytestmark = pytest.mark.timeout(60)

PYTHON = """Traceback (most recent call last):
  File "app.py", line 7, in handle
    work()
  File "work.py", line 3, in work
    raise ValueError("no")
ValueError: no"""
JAVA = (
    "java.lang.Error: no\n\tat com.acme.Work.run(Work.java:3)\n\tat com.acme.App.main(App.java:7)"
)


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        (PYTHON, 'File "work.py", line 3, in work'),
        ("..." + PYTHON[60:], 'File "work.py", line 3, in work'),
        (JAVA, "at com.acme.Work.run(Work.java:3)"),
        ("\n  somewhere\nelse", "somewhere"),
        ("x" * 2_000, "x" * LINE_BYTES_MAX),
        ("\u00e9" * 300, "\u00e9" * 256),
        ("", ""),
        (None, ""),
    ],
)
def test_the_line_of_a_stack_names_the_place(stack: str | None, line: str) -> None:
    assert stack_line(stack) == line


async def bury(client: fifo.Client, error: Exception | None, count: int) -> None:
    """So many messages that were terminated with this error."""
    await client.publish_many("orders", [b"x"] * count)
    for message in await client.get("orders", count):
        await message.terminate("bad", exception=error)


def failed(kind: type[Exception], depth: int) -> Exception:
    """An error that was raised so deep: its traceback is long enough to lie in the log."""
    try:
        if depth:
            raise failed(kind, depth - 1)
        raise kind("no" * 700)
    except Exception as error:
        return error


@pytest.mark.cluster
@pytest.mark.fifo_cluster(nodes=3)
async def test_a_redrive_of_a_groups_values_moves_exactly_that_group(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders", dead_letter="dlq"))
    await bury(client, failed(ValueError, 0), 5)
    await bury(client, failed(KeyError, 0), 3)
    await bury(client, None, 2)
    await client.publish("dlq", b"stray")
    groups = await client.dead_letters("dlq")
    shown = [(one.messages, one.reason, one.source, one.exception_type) for one in groups]
    assert shown == [
        (5, "terminated", "orders", "ValueError"),
        (3, "terminated", "orders", "KeyError"),
        (2, "terminated", "orders", ""),
        (1, "", "", ""),
    ]
    assert all("in failed" in one.stack_line for one in groups[:2])
    assert (await client.message("dlq", groups[0].id)).dead_letter is not None
    wanted: fifo.RedriveKeywords = {
        "exception_type": groups[1].exception_type,
        "stack_line": groups[1].stack_line,
    }
    assert (await client.redrive("dlq", dry_run=True, **wanted)).messages == 3
    assert [one.messages for one in await client.dead_letters("dlq", **wanted)] == [3]
    await client.redrive("dlq", **wanted)
    async with asyncio.timeout(20):
        while (await client.queue("orders")).ready < 3:
            await passed(0.02)
    left = [(one.messages, one.exception_type) for one in await client.dead_letters("dlq")]
    assert left == [(5, "ValueError"), (2, ""), (1, "")]
    with pytest.raises(fifo.InvalidArgument, match="exception_type"):
        await client.redrive("dlq", exception_type=7)  # type: ignore[call-overload]


@pytest.mark.cluster
@pytest.mark.fifo_cluster(nodes=3)
async def test_messages_are_found_and_moved_by_what_they_died_of(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders", dead_letter="dlq"))
    await client.declare(fifo.QueueSpec("aside"))
    await bury(client, ValueError("no"), 3)
    await bury(client, failed(KeyError, 3), 2)
    await bury(client, None, 1)
    await client.publish("dlq", b"no letter", headers={"by": "me", "n": "1"})
    groups = {group.exception_type: group for group in await client.dead_letters("dlq")}
    line = groups["KeyError"].stack_line
    for wanted, count in (
        ({"exception_type": "ValueError"}, 3),
        ({"stack_line": line}, 2),
        ({"exception_type": "ValueError", "stack_line": line}, 0),
        ({"headers": {"by": "me"}}, 1),
        ({"older_than": 3600}, 0),
        ({"older_than": 0}, 7),
    ):
        page = await client.find("dlq", limit=100, **wanted)
        assert (len(page.messages), page.after) == (count, 0), wanted
    for wrong in ({"exception_type": 1}, {"headers": 1}, {"older_than": -1}):
        with pytest.raises(fifo.InvalidArgument, match=next(iter(wrong))):
            await client.find("dlq", **wrong)  # type: ignore[arg-type]
    moved = await client.move_found("dlq", "aside", limit=2, exception_type="ValueError")
    assert (moved.moved, moved.after > 0) == (2, True)
    rest = await client.move_found("dlq", "aside", after=moved.after, exception_type="ValueError")
    assert rest == (1, 0)
    assert (await client.queue("aside")).ready == 3
    assert (await client.queue("dlq")).ready == 4
