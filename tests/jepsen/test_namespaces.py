"""Networks of namespaces do to packets what their names say."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

import pytest

from tests.jepsen import namespaces
from tests.jepsen.cluster import until
from tests.jepsen.namespaces import Namespaced
from tests.support.pytest_ids import ROOT

pytestmark = pytest.mark.process

SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listening:
    print("listens", flush=True)
    one, _ = listening.accept()
    with one:
        one.sendall(one.recv(100))
"""
DIALER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10.0) as one:
    print("connected", flush=True)
    sys.stdin.readline()
    try:
        one.sendall(b"direct")
        print(one.recv(100).decode() or "ended", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


def started(network: Namespaced, name: str, script: str, address: str) -> subprocess.Popen[str]:
    """A process of a node's namespace, once it has said its first line."""
    command = (*network.inside(name), sys.executable, "-c", script, *address.split(":"))
    found = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert found.stdout is not None
    assert found.stdout.readline()
    return found


def torn_at(network: Namespaced, name: str) -> str:
    """Whose connections a node's firewall resets, as its tool lists them."""
    command = (*network.inside(name), "nft", "list", "set", "inet", "jep", "torn")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def sent_after_redial() -> str:
    """The fate of a connection of before that carries nothing for longer than a reset lasts."""
    namespaces.why_no_delay = lambda: "relays are asked for"  # type: ignore[assignment]
    network = Namespaced(["n1", "n2"], random.Random(1))
    nodes = await network.start()
    processes = []
    try:
        for name, script in (("n2", SERVER), ("n1", DIALER)):
            processes.append(started(network, name, script, nodes["n2"]["peer"]))
        assert await network.far() == "relay"
        network.redial()
        assert await until(lambda: "expires" not in torn_at(network, "n2"), 20.0)
        said, _ = processes[-1].communicate("send\n", timeout=20.0)
        return said.strip()
    finally:
        for one in processes:
            one.kill()
        await network.stop()


@pytest.mark.skipif(namespaces.why_not() is not None, reason=namespaces.why_not() or "there are")
def test_nothing_passes_on_a_connection_of_before_once_nodes_are_far() -> None:
    """Two followers had sent each other nothing for 300 ms, and went on as neighbours."""
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-m", __name__],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, namespaces.INSIDE: "1"},
        timeout=60.0,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ConnectionResetError\n"), done.stderr


if __name__ == "__main__":
    print(asyncio.run(sent_after_redial()))
