"""What the queue machine costs per message, alone: publish, checkout and ack in batches.

`python -m bench.machine_bench` prints nanoseconds per message for the whole cycle (medians of
repeated runs, and the spread), plain and with key, headers and ttl on every message, in batches and
one by one, and beside them a reference that does the same with a deque, a dict and a heap, without
checks. Ratios of one run count; absolute figures say what machine it ran on.
"""

import argparse
import gc
import heapq
import platform
import statistics
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable

from fifo.machine import Machine, Meta, commands, replies

BODY_BYTES = 1_000
KEY = b"key-12345678"
HEADERS = b"\x01content-type\x00application/json"
EMPTY = memoryview(b"")


def _area(count: int, *, rich: bool) -> tuple[bytes, commands.Publish]:
    """The area of a publish of `count` messages, and the command with number 1."""
    sizes = array("I", [BODY_BYTES] * count).tobytes()
    data = bytearray(sizes)
    keys = headers = ttls_at = None
    if rich:
        keys = (len(data), len(data) + 4 * count)
        data += array("I", [len(KEY)] * count).tobytes() + KEY * count
        headers = (len(data), len(data) + 4 * count)
        data += array("I", [len(HEADERS)] * count).tobytes() + HEADERS * count
        ttls_at = len(data)
        data += array("Q", [3_600_000] * count).tobytes()
    bodies_at = len(data)
    data += bytes(BODY_BYTES * count)
    command = commands.Publish(
        0, 0, "q", 0, 1, count, 0, bodies_at, keys=keys, headers=headers, ttls_at=ttls_at
    )
    return bytes(data), command


class _Cycle:
    """One machine with one queue and one consumer, ready for publish, checkout and ack."""

    def __init__(self, batch: int, *, rich: bool, ready: int = 0) -> None:
        self.machine = Machine()
        self.index = 0
        self.number = 0
        self.batch = batch
        self.data, self.template = _area(batch, rich=rich)
        self.area = memoryview(self.data)
        attached = self._do(commands.Attach(bytes(16), 0, bytes(16)))
        assert isinstance(attached, replies.Attached), attached
        self.session = attached.session
        self._do(commands.Declare("q", {}))
        for _ in range(ready // batch):
            self.publish()
        options = {"prefetch": max(1_000, 2 * batch)}
        subscribed = self._do(commands.Subscribe(self.session, "t", "q", options))
        assert isinstance(subscribed, replies.Subscribed), subscribed
        self.consumer = subscribed.consumer
        self.token = 1

    def _do(self, command: commands.Command) -> replies.Reply:
        self.index += 1
        reply, _ = self.machine.apply(Meta(self.index, self.index, 0, EMPTY), command)
        return reply

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

    def ack(self) -> None:
        """Ack one batch in one range."""
        self.index += 1
        last = self.token + self.batch - 1
        command = commands.Settle(self.session, self.consumer, 0, ((self.token, last),))
        self.machine.apply_batch(Meta(self.index, self.index, 0, EMPTY), (command,))
        self.token = last + 1


def _measure(work: Callable[[], None], rounds: int, messages: int, repeats: int) -> list[float]:
    """Nanoseconds per message of `rounds` calls of `work`, `repeats` times."""
    found = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter_ns()
        for _ in range(rounds):
            work()
        found.append((time.perf_counter_ns() - start) / (rounds * messages))
    return found


def _machine(batch: int, *, rich: bool, ready: int = 0) -> Callable[[], None]:
    cycle = _Cycle(batch, rich=rich, ready=ready)

    def work() -> None:
        cycle.publish()
        cycle.ack()

    return work


def _reference(batch: int) -> Callable[[], None]:
    """The obvious loop: a deque of tuples, a dict of locks, a heap of deadlines; no checks."""
    waiting: deque[tuple[int, int, int]] = deque()
    locks: dict[int, tuple[int, int, int]] = {}
    deadlines: list[tuple[int, int]] = []
    counter = [0, 0]

    def work() -> None:
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

    return work


def _line(name: str, figures: list[float], reference: float | None) -> str:
    median = statistics.median(figures)
    ratio = f"{median / reference:6.2f} x reference" if reference else ""
    return f"{name:38} {median:9.0f} ns  ({min(figures):.0f}-{max(figures):.0f})  {ratio}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--messages", type=int, default=100_000, help="per repeat, in batches")
    options = parser.parse_args(arguments)
    batch, repeats = options.batch, options.repeats
    rounds = max(options.messages // batch, 1)
    singles = max(options.messages // 10, 1)
    print(f"Python {platform.python_version()} {platform.machine()} {sys.platform}")
    print(f"publish + checkout + ack, ns per message, median of {repeats} (min-max)")
    reference = _measure(_reference(batch), rounds, batch, repeats)
    base = statistics.median(reference)
    print(_line(f"reference loop, batches of {batch}", reference, None))
    plain = _measure(_machine(batch, rich=False), rounds, batch, repeats)
    print(_line(f"plain, batches of {batch}", plain, base))
    rich = _measure(_machine(batch, rich=True), rounds, batch, repeats)
    print(_line(f"key + headers + ttl, batches of {batch}", rich, base))
    deep = _measure(_machine(batch, rich=False, ready=1_000_000), rounds, batch, repeats)
    print(_line("plain, 1 000 000 ready", deep, base))
    reference = _measure(_reference(1), singles, 1, repeats)
    base = statistics.median(reference)
    print(_line("reference loop, one by one", reference, None))
    print(_line("plain, one by one", _measure(_machine(1, rich=False), singles, 1, repeats), base))
    print(_line("rich, one by one", _measure(_machine(1, rich=True), singles, 1, repeats), base))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
