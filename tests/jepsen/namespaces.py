"""A network of its own for each node: real packets, cut by a real firewall.

Owns `Namespaced`, which has the methods of `network.Proxied`: a bridge in the network namespace
that this process runs in, and one namespace per node behind it. Where the kernel cannot delay
packets, far nodes dial each other through proxies of this process meanwhile. `enter` moves this
process into a fresh namespace first, by becoming itself under `unshare`, so nothing of the
machine's own network is touched. Where that cannot be done `why_not` says why.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

from tests.jepsen.network import CLIENTS, FAR_S, LOSS, Links

INSIDE = "FIFO_JEPSEN_NETWORK"
"""Set in a process that already runs in a namespace of its own."""

SUBNET = "10.77.0"
RELAYS = f"{SUBNET}.253"
"""Where the proxies of far nodes are, and come from: not the address of clients, which are cut."""

BRIDGE = "jepbr"
CLIENT_PORT, PEER_PORT, HTTP_PORT = 7101, 7102, 7103
RATE = "256kbit"
"""Of a slow link: the kernel here may not have netem, which would delay packets."""

RESET_FOR = "300ms"
TC = ("tc", "qdisc")
NETEM = ("root", "netem", "delay", f"{FAR_S * 1000:g}ms")

ADDRESSES = 200
"""Addresses of nodes, one after the other: one that joins or moves takes the next."""

RULES = """
table inet jep {
  set cut { type ipv4_addr; }
  set lossy { type ipv4_addr; }
  set torn { type ipv4_addr; flags timeout; }
  set mute { type ipv4_addr; }
  chain in {
    type filter hook input priority 0; policy accept;
    ip saddr @cut drop
    ip saddr @torn tcp flags & rst == 0 reject with tcp reset
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


@cache
def why_no_delay() -> str | None:
    """Why packets cannot be delayed here, or None. Asked within a network of one's own."""
    done = subprocess.run([*TC, "replace", "dev", "lo", *NETEM], capture_output=True, check=False)
    if done.returncode:
        return "the kernel has no netem"
    _try(*TC, "del", "dev", "lo", "root")
    return None


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
        self._address = {CLIENTS: f"{SUBNET}.254"}
        self._given = 0
        self._relays: Links | None = None
        self._relayed = False

    async def start(self) -> dict[str, Any]:
        """Make bridge, namespaces and firewalls; returns the addresses of the nodes."""
        assert INSIDE in os.environ, "only in a network of its own: see `enter`"
        _do("ip", "link", "add", BRIDGE, "type", "bridge")
        for address in (self._address[CLIENTS], RELAYS):
            _do("ip", "addr", "add", f"{address}/24", "dev", BRIDGE)
        _do("ip", "link", "set", BRIDGE, "up")
        return {name: await self.join(name) for name in self.names}

    def hosts(self) -> list[str]:
        """The hosts at which clients find nodes, now and later."""
        return [f"{SUBNET}.{number + 1}" for number in range(ADDRESSES)]

    async def join(self, name: str) -> dict[str, str]:
        """Make room for a node, or give one that moves another address; returns its addresses."""
        if name not in self.names:
            self.names.append(name)
        before = self._address.get(name)
        self._given = self._given % ADDRESSES + 1
        address = self._address[name] = f"{SUBNET}.{self._given}"
        if before is None:
            self._make(name)
        else:
            # In this order: without its first address an interface loses the others of that net.
            for how, which in (("del", before), ("add", address)):
                _do("ip", "-n", self._own(name), "addr", how, f"{which}/24", "dev", "eth0")
        if self._relays is not None:
            await self._relays.join(name, f"{address}:{PEER_PORT}")
        return {
            "client": f"{address}:{CLIENT_PORT}",
            "peer": f"{address}:{PEER_PORT}",
            "http": f"{address}:{HTTP_PORT}",
            "door": f"{address}:{CLIENT_PORT}",
        }

    async def leave(self, name: str) -> None:
        """A node is gone for good."""
        self.names.remove(name)
        del self._address[name]
        if self._relays is not None:
            await self._relays.leave(name)
        _try("ip", "netns", "del", self._own(name))

    def dials(self) -> dict[str, str]:
        """Where nodes dial each other otherwise than they know: while they are far by proxies."""
        return self._relays.dials() if self._relays is not None and self._relayed else {}

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
        if self._relays is not None:
            await self._relays.stop()
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
            if self._relays is not None:
                self._relays.cut(sender, receiver)

    def reset(self, one: str, other: str) -> None:
        """Connections between two are reset by what is sent on them next."""
        # At one end: with both, each would drop the reset that the other sends.
        sender, receiver = (other, one) if other == CLIENTS else (one, other)
        self._add(sender, receiver, "torn", f" timeout {RESET_FOR}")
        if self._relays is not None and CLIENTS not in (one, other):
            self._relays.reset(one, other)

    def slow(self) -> None:
        """Every node's own link has little room: packets queue."""
        for name in self.names:
            _do(
                *self.inside(name), *TC, "replace", "dev", "eth0",
                "root", "tbf", "rate", RATE, "burst", "4kb", "latency", "400ms",
            )  # fmt: skip

    async def far(self) -> str:
        """All nodes are far from each other; says by which means. Without netem in the kernel they
        dial each other through proxies that delay bytes, from the reset of all connections on."""
        if not why_no_delay():
            for name in self.names:
                _do(*self.inside(name), *TC, "replace", "dev", "eth0", *NETEM)
            return "netem"
        if self._relays is None:
            self._relays = Links(self._rng, host=RELAYS, source=RELAYS)
            for name in self.names:
                await self._relays.join(name, f"{self._address[name]}:{PEER_PORT}")
        self._relays.far()
        self._relayed = True
        return "relay"

    def redial(self) -> None:
        """End the connections between nodes that have to dial otherwise, once they know how: each
        with what is sent on it next, which between two followers may take its time."""
        if self._relayed:
            for one, other in itertools.combinations(self.names, 2):
                self._add(one, other, "torn")

    def lossy(self) -> None:
        """Nodes lose packets of each other."""
        if self._relays is not None:
            self._relays.lossy()
        for sender in self.names:
            for receiver in self.names:
                if sender != receiver:
                    self._add(sender, receiver, "lossy")

    def heal(self) -> None:
        """Nothing is wrong any more; connections through proxies end."""
        if self._relays is not None:
            self._relayed = False
            self._relays.heal()
            self._relays.reset()
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
