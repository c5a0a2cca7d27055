"""Memory of a process that held many large buffers and freed them, in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"),
        reason="needs /proc and glibc's malloc",
    ),
]

FREED_BYTES_MAX = 16 << 20
"""Of 64 MiB that were freed, this much may still belong to the process."""

PROGRAM = """
import os, sys
from node.allocator import give_back_large_buffers

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if sys.argv[1] == "fixed":
    assert give_back_large_buffers()
largest = bytes(16 << 20)
del largest
before = resident()
bodies, small = [], []
for _ in range(128):
    bodies.append(bytearray(b"x") * (512 << 10))
    small.append(bytearray(b"x") * 4000)
held = resident() - before
del bodies
print(held, resident() - before)
"""


def kept(setting: str) -> int:
    """Bytes that stay resident after 64 MiB of bodies were freed between small objects."""
    command = [sys.executable, "-c", PROGRAM, setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    held, left = map(int, done.stdout.split())
    assert held > 60 << 20, "the bodies were in memory"
    return left


def test_a_freed_large_buffer_does_not_stay_with_the_node() -> None:
    assert kept("fixed") < FREED_BYTES_MAX


def test_without_the_setting_it_would_stay() -> None:
    """Else the test above could not fail, and the setting might go."""
    assert kept("default") > FREED_BYTES_MAX
