"""Publishing to several queues in one command: each column goes its own way."""

from dataclasses import replace
from typing import Any

import pytest

from fifo.machine import commands, replies
from fifo.machine.commands import Publish
from fifo.words import bounds
from tests.support.machine import (
    Area,
    Bench,
    Message,
    across_command,
    expect,
    publish_command,
    refused,
)

COLUMNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "keys": {"keys": [b"k1", b"", b"k22"]},
    "headers": {"headers": [b"", b"hh", b"h"]},
    "priorities": {"priorities": [9, 4, 0]},
    "delays": {"delays": [0, 5_000, 1]},
    "ttls": {"ttls": [60_000, 0, 31_000]},
    "dedup": {"dedup": [b"a", b"", b"a"]},
    "both": {"keys": [b"", b"k3", b""], "headers": [b"zzz", b"", b""]},
}
"""By queue: each has another column than its neighbours, and other bodies. The last has keys and
headers too, behind those of others."""


def _parts(area: Area) -> list[Publish]:
    return [
        publish_command(
            area,
            queue,
            [f"{queue} {place}".encode() * place for place in range(3)],
            session=1,
            previous=0,
            number=1 + at,
            **columns,
        )
        for at, (queue, columns) in enumerate(COLUMNS.items())
    ]


def _made() -> Bench:
    bench = Bench()
    for queue in COLUMNS:
        bench.declare(queue, priorities=queue == "priorities", dedup_window_ms=100_000)
    bench.attach()
    return bench


def _across(bench: Bench, apart: Area, parts: list[Publish], **changes: Any) -> replies.Reply:
    area = Area()
    area.put(b"what lies before it")
    command = across_command(area, parts, memoryview(apart.data))
    return bench.apply(replace(command, **changes), area=area)[0]


def _stored(reply: replies.Reply) -> list[int | str]:
    """For each queue what was stored, or why nothing was."""
    found: list[int | str] = []
    for part in expect(replies.PublishedAcross, reply).parts:
        if isinstance(part, replies.Refused):
            found.append(part.code)
        else:
            found.append(part.stored if part.refused is None else part.refused.code)
    return found


def _taken(bench: Bench) -> list[Message]:
    """All messages, once their delays are over."""
    bench.now += 10_000
    bench.tick_all()
    found = []
    for queue in COLUMNS:
        bench.subscribe(1, queue, tag=queue)
        found += bench.delivered()
    return found


def test_each_queue_gets_what_it_would_get_alone() -> None:
    together, one_by_one = _made(), _made()
    apart = Area()
    parts = _parts(apart)
    answers = one_by_one.apply(*parts, area=apart)
    reply = expect(replies.PublishedAcross, _across(together, apart, parts))
    assert list(reply.parts) == answers
    assert together.overview("dedup")["counters"] == one_by_one.overview("dedup")["counters"]
    found = _taken(together)
    assert len(found) == 3 * len(COLUMNS) - 1  # one is stored under the dedup id of another
    assert found == _taken(one_by_one)


def test_columns_that_are_default_for_a_queue_cost_it_nothing() -> None:
    """A column that another queue's messages have is not kept with those of this one."""
    bench, apart = _made(), Area()
    _across(bench, apart, _parts(apart))
    state = bench.machine.state
    plain = state.queues[state.queue_names["plain"]]
    assert all(block.is_plain for block in plain.blocks.values())


def test_what_one_queue_refuses_is_a_gap_there_and_nothing_elsewhere() -> None:
    bench, apart = Bench(), Area()
    bench.declare("full", max_length=1)
    bench.declare("roomy")
    bench.attach()

    def part(queue: str, previous: int, *bodies: bytes) -> Publish:
        return publish_command(
            apart, queue, bodies, session=1, previous=previous, number=previous + 1
        )

    parts = [
        part("full", 0, b"1", b"2"),
        part("roomy", 0, b"1"),
        part("missing", 0, b"1"),
        part("full", 2, b"3"),
        part("roomy", 1, b"2", b"3"),
    ]
    found = _stored(_across(bench, apart, parts))
    assert found == ["queue_full", 1, "queue_not_found", "gap", 2]
    assert [bench.counts(queue)[0] for queue in ("full", "roomy")] == [1, 3]


def test_sent_again_it_is_all_duplicates() -> None:
    bench, apart = _made(), Area()
    parts = _parts(apart)
    _across(bench, apart, parts)
    again = expect(replies.PublishedAcross, _across(bench, apart, parts)).parts
    assert [(one.stored, one.duplicates) for one in again if type(one) is replies.Published] == [
        (0, 3)
    ] * len(parts)


def test_numbers_that_cannot_be_are_refused_for_their_queue_alone() -> None:
    bench, apart = _made(), Area()
    good, bad = _parts(apart)[:2]
    parts = [replace(bad, previous=7, number=7), good, replace(bad, number=2**63 - 2)]
    assert _stored(_across(bench, apart, parts)) == ["invalid", 3, "invalid"]


@pytest.mark.parametrize(
    "changes",
    [
        {"counts_at": 1_000_000},
        {"previous_at": 1_000_000},
        {"numbers_at": 1_000_000},
        {"below_at": 1_000_000},
        {"sizes_at": 1_000_000},
        {"bodies_at": 1_000_000},
        {"count": 1},
        {"queues": ()},
        {"queues": ("plain",)},
    ],
    ids=str,
)
def test_columns_that_do_not_fit_refuse_all_of_it(changes: dict[str, Any]) -> None:
    bench, apart = _made(), Area()
    parts = _parts(apart)[:2]
    refused(_across(bench, apart, parts, **changes), "invalid")
    assert [bench.counts(part.queue) for part in parts] == [(0, 0, 0)] * 2


def test_the_session_and_the_producer_are_checked_once_for_all() -> None:
    bench, apart = _made(), Area()
    parts = _parts(apart)
    refused(_across(bench, apart, parts, session=99), "unknown_session")
    refused(_across(bench, apart, parts, fence=(0, 7)), "fenced")
    refused(_across(bench, apart, parts, producer=99), "unknown_producer")


def test_one_command_names_no_more_queues_and_messages_than_its_bounds() -> None:
    plain = [0, 0, ["q"] * bounds.PUBLISH_QUEUES_MAX, bounds.PUBLISH_ACROSS_MESSAGES_MAX]
    code = commands.code_of(commands.PublishAcross)
    commands.from_list([code, *plain, *[0] * 5])
    for place, more in ((2, [*plain[2], "q"]), (3, plain[3] + 1)):  # type: ignore[misc, operator]
        with pytest.raises(ValueError, match="PublishAcross"):
            commands.from_list([code, *plain[:place], more, *plain[place + 1 :], *[0] * 5])
