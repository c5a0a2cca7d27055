"""The picture of all queues: a row for each, made once for all browsers, sent as what has changed.

Owns the rows and their versions. A browser names the version that it has, and gets the rows that
are newer, so that 1,000 queues of which ten are busy cost ten rows. Making one is bounded to a
share of a core, by being made less often. Must not know who asks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fifo.machine.contract import QueueFigures
from node.http import limits
from node.http.console.samples import Samples, events_of
from node.http.console.watch import ConsumerStates

if TYPE_CHECKING:
    from fifo.machine.contract import Machine
    from node.broker.permissions import Rights
    from node.server import Node

ROW: Final = (
    "number", "name", "ready", "locked", "delayed", "bytes",
    "published_s", "delivered_s", "acked_s", "redelivered_s", "dead_s",
    "oldest_ready_ms", "up", "suspected", "disconnected",
    "paused", "full", "dead_letter", "redrive", "takes_dead",
)  # fmt: skip
"""The columns of a row. `oldest_ready_ms` is cluster time, so that waiting changes no row;
`takes_dead`: another queue sends its dead letters here."""

logger = logging.getLogger("fifo.http")

_CONSUMER_STATES: Final = ("up", "suspected", "disconnected")
_NO_RATES: Final = (None,) * 5
_STILL: Final = (0.0,) * 5
_REST: Final = ROW.index("oldest_ready_ms")
_NO_CONSUMERS: Final[Mapping[str, int]] = {}


class Row(NamedTuple):
    """A queue as it was at a version, in JSON."""

    version: int
    name: str
    values: tuple[Any, ...]
    text: str
    queue: QueueFigures
    still: bool
    """Whether nothing has happened for as long as rates look back."""


class Picture:
    """The rows of one node's replica."""

    def __init__(self, node: Node, samples: Samples, states: ConsumerStates) -> None:
        self._node = node
        self._samples = samples
        self._states = states
        self.version = 0
        self.cpu_seconds = 0.0
        """CPU time that pictures have cost so far."""
        self._rows: dict[int, Row] = {}
        self._figures: dict[int, tuple[tuple[object, ...] | None, QueueFigures]] = {}
        self._gone: deque[tuple[int, int]] = deque(maxlen=limits.GONE_QUEUES_MAX)
        self._making: asyncio.Task[None] | None = None
        self._next_at = 0.0
        self._answers: dict[tuple[int, Rights | None], str] = {}

    async def look(self) -> None:
        """Have a picture that is as new as its cost allows."""
        if self._making is None and time.monotonic() >= self._next_at:
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._made)
        if self._making is not None:
            await asyncio.shield(self._making)

    async def close(self) -> None:
        """Give up a picture that is being made."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    def changed(self, since: int, rights: Rights | None) -> str:
        """The rows newer than a version, and the numbers of queues that are gone, as JSON;
        `rights`: of the one who asks, who may know of some queues only. Made once for all who have
        the same."""
        oldest_gone = self._gone[0][0] if len(self._gone) == limits.GONE_QUEUES_MAX else 0
        since = since if oldest_gone <= since <= self.version else 0
        key = since, rights
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= limits.PICTURE_ANSWERS_MAX:
                self._answers.clear()
            found = self._answers[key] = self._changed(since, rights)
        return found

    def _changed(self, since: int, rights: Rights | None) -> str:
        rows = [
            row.text
            for row in self._rows.values()
            if row.version > since and (rights is None or rights.sees(row.name))
        ]
        gone = [number for version, number in self._gone if version > since] if since else []
        return (
            f'{{"version":{self.version},"whole":{json.dumps(not since)},'
            f'"gone":{json.dumps(gone)},"rows":[{",".join(rows)}]}}'
        )

    def _made(self, task: asyncio.Task[None]) -> None:
        self._making = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("event=picture_failed", exc_info=error)

    async def _make(self) -> None:
        began_cpu = self.cpu_seconds
        figures = await self.figures()
        consumers = await self._consumers()
        takes_dead = {queue.dead_letter for queue in figures.values()}
        now, version = time.monotonic(), self.version + 1
        moved = False
        for piece in _pieces(list(figures.items())):
            with _Measured(self):
                for number, queue in piece:
                    known = self._rows.get(number)
                    rest = _rest(queue, consumers, takes_dead)
                    if known is not None and _is_at_rest(known, queue, rest):
                        continue
                    values, still = self._values(number, queue, rest, now)
                    if known is not None and known.values == values:
                        self._rows[number] = known._replace(queue=queue, still=still)
                        continue
                    text = _json(values)
                    self._rows[number] = Row(version, queue.name, values, text, queue, still)
                    moved = True
            await asyncio.sleep(0)
        for number in self._rows.keys() - figures.keys():
            del self._rows[number]
            self._gone.append((version, number))
            moved = True
        if moved:
            self.version = version
        self._answers.clear()
        spent = self.cpu_seconds - began_cpu
        self._next_at = now + max(limits.LOOK_SECONDS_MIN, spent / limits.PICTURE_SHARE)

    async def figures(self) -> dict[int, QueueFigures]:
        """The figures of all queues, in pieces; those of one that has not changed are the same
        object."""
        machine = self._node.broker.host.machine
        found: dict[int, QueueFigures] = {}
        known = self._figures
        for piece in _pieces(machine.queue_numbers()):
            with _Measured(self):
                for number in piece:
                    pulse = machine.queue_pulse(number)
                    if number in known and known[number][0] == pulse:
                        found[number] = known[number][1]
                        continue
                    queue = machine.queue_figures(number)
                    if queue is not None:
                        found[number] = queue
                        known[number] = pulse, queue
            await asyncio.sleep(0)
        for number in known.keys() - found.keys():
            del known[number]
        return found

    async def _consumers(self) -> dict[str, Counter[str]]:
        """The states of the consumers of each queue; their changes are noted."""
        machine = self._node.broker.host.machine
        found: dict[str, Counter[str]] = {}
        states: dict[int, str] = {}
        for piece in _pieces(machine.consumer_numbers()):
            with _Measured(self):
                _count(machine, piece, found, states)
            await asyncio.sleep(0)
        self._states.look(int(time.time() * 1000), states)
        return found

    async def look_at_consumers(self) -> None:
        """Note the changes of the consumers' states, where no picture does."""
        await self._consumers()

    def _values(
        self, number: int, queue: QueueFigures, rest: tuple[Any, ...], now: float
    ) -> tuple[tuple[Any, ...], bool]:
        """The values of a row, and whether it is still."""
        rates = self._samples.rates(number, now, events_of(queue))
        begin = (number, queue.name, queue.ready, queue.locked, queue.delayed, queue.bytes)
        return (*begin, *(rates or _NO_RATES), *rest), rates == _STILL


def _is_at_rest(known: Row, queue: QueueFigures, rest: tuple[Any, ...]) -> bool:
    """Whether a row is what it was: nothing has happened, and no rate falls any more."""
    return known.still and known.queue is queue and known.values[_REST:] == rest


def _rest(
    queue: QueueFigures, consumers: Mapping[str, Mapping[str, int]], takes_dead: set[str | None]
) -> tuple[Any, ...]:
    """The values of a row behind its rates."""
    states = consumers.get(queue.name, _NO_CONSUMERS)
    return (
        queue.oldest_ready_ms, *(states.get(state, 0) for state in _CONSUMER_STATES),
        queue.paused, queue.full, queue.dead_letter, queue.redrive,
        queue.name in takes_dead,
    )  # fmt: skip


class _Measured:
    """The CPU time of a piece, added to the cost of pictures."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._picture.cpu_seconds += time.thread_time() - self._began


def _count(
    machine: Machine,
    numbers: list[int],
    found: dict[str, Counter[str]],
    states: dict[int, str],
) -> None:
    for number in numbers:
        consumer = machine.consumer_figures(number)
        if consumer is not None:
            states[number] = state = _state_of(consumer.states)
            shown = "disconnected" if state == "detached" else state
            found.setdefault(consumer.queue, Counter())[shown] += 1


def _state_of(states: tuple[str, ...]) -> str:
    """The worst of the states that a consumer is in at once."""
    return next(one for one in ("disconnected", "suspected", "detached", "up") if one in states)


def _pieces(items: list[Any]) -> Iterator[list[Any]]:
    size = limits.PICTURE_PIECE
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def _json(values: tuple[Any, ...]) -> str:
    return json.dumps(values, separators=(",", ":"))
