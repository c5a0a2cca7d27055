"""Two hosts on one machine, for `make spark`: clocks, a folder and a network of their own.

Owns namespaces and what is done in them: the far host's monotonic clock is a day ahead and its wall
clock a week behind, its temporary folder is empty, and packets to and from chosen ports get lost.
All runs in a network of its own, so that nothing is lost to other programs. Needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.processes import ROOT

DAY_S: Final = 86_400
WALL_BEHIND_S: Final = 7 * DAY_S
"""Behind and not ahead: what waits for a moment of this clock ends at once, not in a week."""

LOST_PER_MILLE: Final = 20

INSIDE: Final = "FIFO_OWN_NETWORK"
"""Set in a process that has a network of its own."""

_CLOCKS: Final = ("unshare", "--time", "--monotonic", str(DAY_S), "--mount", "--fork")
_FOLDER: Final = "mount -t tmpfs tmpfs /tmp"
_SHIM: Final = "/tmp/wall.so"
_FAR: Final = f'exec 3<"$0" && {_FOLDER} && cat <&3 >{_SHIM} && exec 3<&-'
_FAR_EXEC: Final = f'{_FAR} && export LD_PRELOAD={_SHIM} && exec "$@"'

# A namespace of time has no wall clock: only the calls that read it can be given another one.
_WALL_C: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int found = real(clock, now);
    if (!found && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec -= BEHIND_S;
    return found;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (at) *at = found.tv_sec;
    return found.tv_sec;
}
"""

_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1
_FLAGS: Final = struct.Struct("16sH14x")


def why_not() -> str | None:
    """Why there cannot be two hosts here, or None."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "hosts with clocks of their own need root and unshare"
    hidden = [one for one in (ROOT, sys.prefix) if Path(one).resolve().is_relative_to("/tmp")]
    if hidden:
        return f"{hidden[0]} lies in /tmp, of which the far host has one of its own"
    if _compiler() is None:
        return "a host with a wall clock of its own needs a C compiler (cc)"
    done = subprocess.run([*_CLOCKS, "--net", "sh", "-c", _FOLDER], capture_output=True)
    return f"no clock of its own: {done.stderr.decode().strip()}" if done.returncode else None


def into_own_network(module: str, arguments: Sequence[str]) -> None:
    """Go on as `python -m module` in a network that has a loopback device alone; returns where this
    is that process."""
    if os.environ.get(INSIDE):
        _raise_loopback()
        return
    os.environ[INSIDE] = "yes"
    os.execvp("unshare", ["unshare", "--net", sys.executable, "-m", module, *arguments])


def _raise_loopback() -> None:
    with socket.socket() as any_socket:
        asked = _FLAGS.pack(b"lo", 0)
        _, flags = _FLAGS.unpack(fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _FLAGS.pack(b"lo", flags | _IFF_UP))


def far(folder: Path) -> tuple[str, ...]:
    """Begin of a command that runs on the far host."""
    return (*_CLOCKS, "--kill-child", "sh", "-c", _FAR_EXEC, str(_wall_clock(folder)))


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def _wall_clock(folder: Path) -> Path:
    """The library that gives a process another wall clock."""
    source, library = folder / "wall.c", folder / "wall.so"
    source.write_text(_WALL_C)
    compiler = _compiler()
    assert compiler is not None, "why_not says so"
    given = ("-shared", "-fPIC", "-O1", f"-DBEHIND_S={WALL_BEHIND_S}")
    subprocess.run([compiler, *given, "-o", library, source, "-ldl"], check=True)
    return library


def why_none_lost() -> str | None:
    """Why no packets can be lost here, or None."""
    return None if shutil.which("nft") else "losing packets needs nft"


class Lost:
    """The number of packets that were lost, once the block has ended."""

    packets = 0


@contextlib.contextmanager
def losing(ports: Sequence[int]) -> Iterator[Lost]:
    """Inside, packets to and from these ports are lost, 2 % each way."""
    assert os.environ.get(INSIDE), "in a network that others use too"
    named = ", ".join(map(str, ports))
    drop = f"numgen random mod 1000 < {LOST_PER_MILLE} counter name lost drop"
    rules = f"tcp dport {{ {named} }} {drop}\ntcp sport {{ {named} }} {drop}\n"
    chain = f"chain input {{\ntype filter hook input priority 0;\n{rules}}}\n"
    _nft("-f", "-", text=f"table ip lossy {{\ncounter lost {{ }}\n{chain}}}\n")
    lost = Lost()
    try:
        yield lost
    finally:
        found = json.loads(_nft("-j", "list", "counter", "ip", "lossy", "lost"))
        counters = [one["counter"] for one in found["nftables"] if "counter" in one]
        lost.packets = int(counters[0]["packets"])
        _nft("delete", "table", "ip", "lossy")


def _nft(*arguments: str, text: str = "") -> str:
    done = subprocess.run(
        ["nft", *arguments], input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout
