"""A network of its own for each node: real packets, cut by a real firewall.

Owns `Namespaced`, which has the methods of `network.Proxied`: a bridge in the network namespace
that this process runs in, and one namespace per node behind it. `enter` moves this process into a
fresh namespace first, by becoming itself under `unshare`, so nothing of the machine's own network
is touched. Where that cannot be done `why_not` says why.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

from tests.jepsen.network import CLIENTS, FAR_S, LOSS

INSIDE = "FIFO_JEPSEN_NETWORK"
"""Set in a process that already runs in a namespace of its own."""

SUBNET = "10.77.0"
BRIDGE = "jepbr"
CLIENT_PORT, PEER_PORT, HTTP_PORT = 7101, 7102, 7103
RATE = "256kbit"
"""Of a slow link: the kernel here may not have netem, which would delay packets."""

RESET_FOR = "300ms"
TC = ("tc", "qdisc")

RULES = """
table inet jep {
  set cut { type ipv4_addr; }
  set lossy { type ipv4_addr; }
  set torn { type ipv4_addr; flags timeout; }
  set mute { type ipv4_addr; }
  chain in {
    type filter hook input priority 0; policy accept;
    ip saddr @cut drop
    ip saddr @torn meta l4proto tcp reject with tcp reset
    ip saddr @lossy numgen random mod 100 < %d drop
  }
  chain out {
    type filter hook output priority 0; policy accept;
    ip daddr @mute drop
  }
}
"""


@cache
def why_not() -> str | None:
    """Why there can be no such network here, or None."""
    missing = [
        tool for tool in ("ip", "tc", "nft", "unshare", "nsenter") if shutil.which(tool) is None
    ]
    if missing:
        return f"network namespaces need {', '.join(missing)}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if INSIDE in os.environ:
        return None
    probe = "ip link add jp0 type veth peer name jp1 && nft list ruleset"
    done = subprocess.run(["unshare", "-n", "sh", "-c", probe], capture_output=True, check=False)
    return "network namespaces need veth and nft in the kernel" if done.returncode else None


def enter(arguments: Sequence[str]) -> NoReturn:
    """Become `python -m tests.jepsen` with these arguments in a fresh network."""
    command = ["unshare", "-n", sys.executable, "-m", "tests.jepsen", *arguments]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


def loopback_up() -> None:
    """A fresh namespace has its loopback down, which proxied clusters need."""
    _do("ip", "link", "set", "lo", "up")


class Namespaced:
    """A namespace per node, and this process's own for all clients."""

    def __init__(self, names: Sequence[str], rng: random.Random) -> None:
        self.names = list(names)
        self._rng = rng
        self._address = {name: f"{SUBNET}.{place + 1}" for place, name in enumerate(names)}
        self._address[CLIENTS] = f"{SUBNET}.254"

    async def start(self) -> dict[str, Any]:
        """Make bridge, namespaces and firewalls; returns the addresses for `cluster.json`."""
        assert INSIDE in os.environ, "only in a network of its own: see `enter`"
        _do("ip", "link", "add", BRIDGE, "type", "bridge")
        _do("ip", "addr", "add", f"{self._address[CLIENTS]}/24", "dev", BRIDGE)
        _do("ip", "link", "set", BRIDGE, "up")
        for name in self.names:
            self._make(name)
        nodes = {}
        for name in self.names:
            address = self._address[name]
            nodes[name] = {
                "client": f"{address}:{CLIENT_PORT}",
                "peer": f"{address}:{PEER_PORT}",
                "http": f"{address}:{HTTP_PORT}",
                "door": f"{address}:{CLIENT_PORT}",
            }
        return {"nodes": nodes, "dials": {}}

    def _make(self, name: str) -> None:
        own, outside = self._own(name), f"jep{name}"
        _do("ip", "netns", "add", own)
        _do("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", own)
        _do("ip", "link", "set", outside, "master", BRIDGE, "up")
        _do("ip", "-n", own, "addr", "add", f"{self._address[name]}/24", "dev", "eth0")
        _do("ip", "-n", own, "link", "set", "eth0", "up")
        _do("ip", "-n", own, "link", "set", "lo", "up")
        self._nft(name, "-f", "-", text=RULES % int(LOSS * 100))

    def _own(self, name: str) -> str:
        """Names of namespaces are the machine's: ours have our pid."""
        return f"jep{os.getpid()}{name}"

    async def stop(self) -> None:
        """Remove what was made."""
        for name in self.names:
            _try("ip", "netns", "del", self._own(name))
        _try("ip", "link", "del", BRIDGE)

    def inside(self, name: str) -> tuple[str, ...]:
        """The prefix of a node's command.

        Not `ip netns exec`: that gives it a copy of all mounts, which keeps other nodes' disks
        alive when their power is cut.
        """
        return ("nsenter", f"--net=/run/netns/{self._own(name)}")

    def cut(self, sender: str, receiver: str) -> None:
        """Packets of one are dropped at the other; those to clients on their way out."""
        if receiver == CLIENTS:
            self._add(CLIENTS, sender, "mute")
        else:
            self._add(sender, receiver, "cut")

    def reset(self, one: str, other: str) -> None:
        """Connections between two are reset by what is sent on them next."""
        for sender, receiver in ((one, other), (other, one)):
            if receiver != CLIENTS:
                self._add(sender, receiver, "torn", f" timeout {RESET_FOR}")

    def slow(self) -> None:
        """Every node's own link has little room: packets queue."""
        for name in self.names:
            _do(
                *self.inside(name), *TC, "replace", "dev", "eth0",
                "root", "tbf", "rate", RATE, "burst", "4kb", "latency", "400ms",
            )  # fmt: skip

    def far(self) -> None:
        """All nodes are far from each other, where the kernel can delay packets; else slow."""
        netem = ("root", "netem", "delay", f"{FAR_S * 1000:g}ms")
        for name in self.names:
            command = (*self.inside(name), *TC, "replace", "dev", "eth0", *netem)
            if subprocess.run(command, capture_output=True, check=False).returncode:
                self.slow()
                return

    def lossy(self) -> None:
        """Nodes lose packets of each other."""
        for sender in self.names:
            for receiver in self.names:
                if sender != receiver:
                    self._add(sender, receiver, "lossy")

    def heal(self) -> None:
        """Nothing is wrong any more."""
        for name in self.names:
            for what in ("cut", "lossy", "torn", "mute"):
                self._nft(name, "flush", "set", "inet", "jep", what)
            # There is none where nothing was slow.
            _try(*self.inside(name), *TC, "del", "dev", "eth0", "root")

    def _add(self, address_of: str, at: str, what: str, more: str = "") -> None:
        """Add somebody's address to a set of a node's firewall."""
        element = f"{{ {self._address[address_of]}{more} }}"
        self._nft(at, "add", "element", "inet", "jep", what, element)

    def _nft(self, name: str, *arguments: str, text: str | None = None) -> None:
        _do(*self.inside(name), "nft", *arguments, text=text)


def _do(*command: str, text: str | None = None) -> None:
    """Run a system command. Raises OSError with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, input=text, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _try(*command: str) -> None:
    """Run a system command that may find nothing to do."""
    subprocess.run(command, capture_output=True, check=False)
