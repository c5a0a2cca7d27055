"""Memory of a process that held many large buffers and freed them, in a process of its own."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys

import pytest

from node import allocator
from node.allocator import FreedMemory

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"),
        reason="needs /proc and glibc's malloc",
    ),
]

FREED_BYTES_MAX = 16 << 20
"""Of 64 MiB that were freed, this much may still belong to the process."""

PROGRAM = """
import sys
from node.allocator import FreedMemory, resident_bytes

largest = bytes(16 << 20)
del largest
freed = FreedMemory()
before = resident_bytes()
bodies, small = [], []
for _ in range(128):
    bodies.append(bytearray(b"x") * (512 << 10))
    small.append(bytearray(b"x") * 4000)
held = resident_bytes() - before
if sys.argv[1] == "in use":
    assert freed.is_due()
    freed.give_back()
del bodies
looks = 4 if sys.argv[1] == "in use" else 1
is_due = any(freed.is_due() for _ in range(looks))
if is_due and sys.argv[1] != "default":
    freed.give_back()
print(held, resident_bytes() - before, int(is_due), int(freed.is_due()))
"""


def kept(setting: str) -> tuple[int, bool, bool]:
    """Bytes that stay resident after 64 MiB of bodies were freed between small objects; whether
    they were due to be given back, and whether they are still.
    """
    command = [sys.executable, "-c", PROGRAM, setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    held, left, was_due, is_due = map(int, done.stdout.split())
    assert held > 60 << 20, "the bodies were in memory"
    return left, bool(was_due), bool(is_due)


def test_freed_buffers_do_not_stay_with_the_node() -> None:
    left, was_due, is_due = kept("trimmed")
    assert left < FREED_BYTES_MAX
    assert (was_due, is_due) == (True, False)


def test_buffers_that_were_in_use_when_memory_was_given_back_do_not_stay() -> None:
    left, was_due, is_due = kept("in use")
    assert left < FREED_BYTES_MAX
    assert (was_due, is_due) == (True, False)


def test_without_giving_back_they_would_stay() -> None:
    """Else the test above could not fail, and the looks might go."""
    left, was_due, is_due = kept("default")
    assert left > FREED_BYTES_MAX
    assert (was_due, is_due) == (True, True)


async def test_a_running_node_looks_and_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = FreedMemory()
    given = asyncio.Event()
    monkeypatch.setattr(allocator, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(freed, "is_due", lambda: not given.is_set())
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(freed, "give_back", lambda: loop.call_soon_threadsafe(given.set))
    running = asyncio.ensure_future(freed.run())
    async with asyncio.timeout(10):
        await given.wait()
    running.cancel()
