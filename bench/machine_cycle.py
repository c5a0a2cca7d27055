"""The work that the benchmark of the queue machine times, and the obvious loop it is held against.

Owns the commands of a cycle (publish, checkout with it, ack), machines that are filled to a depth,
and the reference: a deque, a dict and a heap that do the same without checks. Knows nothing of how
they are timed.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fifo.machine import Machine, Meta, commands, replies

if TYPE_CHECKING:
    from collections.abc import Callable

BODY_BYTES = 1_000
KEY = b"key-12345678"
HEADERS = b"\x01content-type\x00application/json"
EMPTY = memoryview(b"")
HOLDER_MESSAGES = 62_500
"""Locks of one holder of a crowd: under the machine's bound for a prefetch, 16 to the million."""

LONG_MS = 300_000
"""The longest lock that there is."""


def area(count: int, *, rich: bool) -> tuple[bytes, commands.Publish]:
    """The area of a publish of `count` messages, and the command with number 1."""
    data = bytearray(array("I", [BODY_BYTES] * count).tobytes())
    keys = headers = ttls_at = None
    if rich:
        keys = (len(data), len(data) + 4 * count)
        data += array("I", [len(KEY)] * count).tobytes() + KEY * count
        headers = (len(data), len(data) + 4 * count)
        data += array("I", [len(HEADERS)] * count).tobytes() + HEADERS * count
        ttls_at = len(data)
        data += array("Q", [LONG_MS] * count).tobytes()
    bodies_at = len(data)
    data += bytes(BODY_BYTES * count)
    command = commands.Publish(
        0, 0, "q", 0, 1, count, 0, bodies_at, keys=keys, headers=headers, ttls_at=ttls_at
    )
    return bytes(data), command


class Cycle:
    """A machine with one queue: publishes in batches, and one consumer that acks them."""

    def __init__(
        self,
        batch: int,
        *,
        rich: bool = False,
        ready: int = 0,
        locked: int = 0,
        spec: dict[str, Any] | None = None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`look` is called between entries while it is filled: as a node's own collector is."""
        self.machine = Machine()
        self.look = look
        self.index = 0
        self.number = 0
        self.token = 1
        self.batch = batch
        self.data, self.template = area(batch, rich=rich)
        self.area = memoryview(self.data)
        attached = self.do(commands.Attach(bytes(16), 0, bytes(16), bytes(16)))
        assert isinstance(attached, replies.Attached), attached
        self.session = attached.session
        self.do(commands.Declare("q", spec or {}))
        left = locked
        while left > 0:
            held = min(left, HOLDER_MESSAGES)
            self.hold(held, LONG_MS)
            left -= held
        for _ in range(ready // batch):
            self.publish()
            look()
        self.consumer = 0
        self.alone = 0

    def do(self, command: commands.Command, *, later_ms: int = 0) -> replies.Reply:
        """Apply a command that came without an area, `later_ms` after the last one.

        A refusal is fast, and no figure of anything: it ends the measurement.
        """
        self.index += 1
        stamp_ms = max(self.index, self.machine.cluster_time_ms) + later_ms
        reply, _ = self.machine.apply(Meta(self.index, stamp_ms, 0, EMPTY), command)
        assert not isinstance(reply, replies.Refused), reply
        return reply

    def subscribe(self, tag: str, prefetch: int, lock_ms: int = 30_000) -> int:
        """A consumer that is served from now on; its number."""
        options = {"prefetch": prefetch, "lock_ms": lock_ms, "max_lock_ms": LONG_MS}
        reply = self.do(commands.Subscribe(self.session, tag, "q", options))
        assert isinstance(reply, replies.Subscribed), reply
        return reply.consumer

    def hold(self, messages: int, lock_ms: int) -> int:
        """Publish so many, and lock them all for one new consumer; its number."""
        consumer = self.subscribe(f"holder {self.index}", messages, lock_ms)
        for _ in range(-(-messages // self.batch)):
            self.publish()
            self.look()
        return consumer

    def hold_singly(self, messages: int) -> int:
        """Publish so many one by one, at a time of its own each, all for one new consumer."""
        consumer = self.subscribe("singly", messages, LONG_MS)
        batch, self.batch = self.batch, 1
        for _ in range(messages):
            self.publish()
            self.look()
        self.batch = batch
        return consumer

    def delay(self, messages: int, delay_ms: int) -> None:
        """Publish so many, all of them due so much later."""
        area = self.data + array("Q", [delay_ms] * self.batch).tobytes()
        for _ in range(messages // self.batch):
            self.publish_with(area, delays_at=len(self.data))

    def resume(self) -> None:
        """The session's client is back: what it holds is sent again."""
        self.do(commands.Attach(bytes(16), 0, bytes(16), bytes(16)))

    def command(self) -> commands.Publish:
        """The next publish, as it comes from the log."""
        plain = self.template
        return commands.Publish(
            self.session,
            0,
            "q",
            self.number,
            self.number + 1,
            self.batch,
            plain.sizes_at,
            plain.bodies_at,
            plain.keys,
            plain.headers,
            None,
            None,
            plain.ttls_at,
        )

    def publish(self) -> None:
        """Publish one batch; what there is credit for is handed out with it."""
        self.index += 1
        meta = Meta(self.index, self.index, 0, self.area)
        self.machine.apply_batch(meta, (self.command(),))
        self.number += self.batch

    def publish_with(self, area: bytes, **columns: Any) -> None:
        """Publish one batch with more columns, which lie in `area` behind the cycle's own; to fill
        a machine."""
        self.look()
        self.index += 1
        meta = Meta(self.index, self.index, 0, memoryview(area))
        self.machine.apply_batch(meta, (replace(self.command(), **columns),))
        self.number += self.batch

    def settle(self, verb: int = 0) -> None:
        """Settle one batch of the consumer's in one range; ack by default."""
        self.index += 1
        last = self.token + self.batch - 1
        command = commands.Settle(self.session, self.consumer, verb, ((self.token, last),))
        self.machine.apply_batch(Meta(self.index, self.index, 0, EMPTY), (command,))
        self.token = last + 1

    def work(self) -> Callable[[], None]:
        """The cycle that is timed: publish, checkout with it, ack."""
        self.consumer = self.subscribe("worker", max(1_000, 2 * self.batch))

        def once() -> None:
            self.publish()
            self.settle()

        return once


def reference(batch: int) -> Callable[[], None]:
    """The obvious loop: a deque of tuples, a dict of locks, a heap of deadlines; no checks."""
    waiting: deque[tuple[int, int, int]] = deque()
    locks: dict[int, tuple[int, int, int]] = {}
    deadlines: list[tuple[int, int]] = []
    counter = [0, 0]

    def once() -> None:
        now, first = counter
        for place in range(batch):
            waiting.append((now, place * BODY_BYTES, BODY_BYTES))
        token = first
        while waiting:
            locks[token] = waiting.popleft()
            heapq.heappush(deadlines, (now + 30_000, token))
            token += 1
        for acked in range(first, token):
            del locks[acked]
        while deadlines and deadlines[0][1] not in locks:
            heapq.heappop(deadlines)
        counter[0] += 1
        counter[1] = token

    return once
