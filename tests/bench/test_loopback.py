"""The launchers of bench share ports that are free, waits that end, and children that report."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.loopback import (
    BASE_PORTS,
    SHARE_ENV,
    ClusterFailed,
    check_running,
    ended,
    free_ports,
    is_free,
    until,
)
from bench.processes import Child

if TYPE_CHECKING:
    from pathlib import Path

FAILING = "import sys; print('port taken', file=sys.stderr); sys.exit(3)"
WAITING = "import signal; signal.pause()"


def child(folder: Path, script: str) -> tuple[Child, subprocess.Popen[bytes]]:
    log = folder / "n1.log"
    with log.open("wb") as said:
        process = subprocess.Popen([sys.executable, "-c", script], stderr=said)
    return Child("n1", process, log), process


def listening(port: int) -> socket.socket:
    """A socket that listens as servers do: connections that have ended do not keep it from it."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", port))
    found.listen()
    return found


def test_free_ports_can_be_listened_on_and_lie_below_those_of_outgoing_connections() -> None:
    found = free_ports(9)
    assert len(set(found)) == 9
    for port in found:
        assert BASE_PORTS.start <= port < BASE_PORTS.stop + 100
        listening(port).close()


def test_programs_side_by_side_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port is free too while the node that listens there is down, and must not go to another."""

    def given(share: str) -> set[int]:
        monkeypatch.setenv(SHARE_ENV, share)
        return {free_ports(1)[0] for _ in BASE_PORTS}

    first, second = given("0/2"), given("1/2")
    assert first
    assert second
    assert not first & second


@pytest.mark.parametrize("said", ["2/2", "1", "a/b", "-1/2", "0/0"])
def test_a_share_that_is_none_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARE_ENV, said)
    with pytest.raises(ClusterFailed, match=f"FIFO_BENCH_PORTS is '{said}': name a share like 1/2"):
        free_ports(1)


def test_ports_come_again_only_when_all_others_have_had_their_turn() -> None:
    found = [free_ports(1)[0] for _ in range(len(BASE_PORTS) // 4)]
    assert len(set(found)) == len(found)


def test_a_port_is_free_though_connections_to_it_have_just_ended() -> None:
    """They stay in TIME_WAIT for a minute: the next cluster of a machine need not wait for that."""
    (port,) = free_ports(1)
    with listening(port) as server, socket.create_connection(("127.0.0.1", port)) as client:
        server.accept()[0].close()
        assert client.recv(1) == b""
    assert is_free(port)
    listening(port).close()
    with socket.socket() as strict, pytest.raises(OSError, match="in use"):
        strict.bind(("127.0.0.1", port))


async def test_a_wait_returns_the_first_true_answer_and_fails_with_its_limit() -> None:
    answers = iter((None, (), "led"))

    async def look() -> object:
        return next(answers)

    assert await until(look, 5.0, "no leader", 0.0) == "led"

    async def never() -> bool:
        return False

    with pytest.raises(ClusterFailed, match=r"^no leader within 0 s$"):
        await until(never, 0.0, "no leader")


@pytest.mark.process
async def test_a_child_that_fails_is_reported_with_its_code_and_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    failing, _ = child(tmp_path, FAILING)
    with pytest.raises(ClusterFailed, match=r"^n1 ended with code 3: port taken$"):
        await ended(failing, 30.0)
    with pytest.raises(ClusterFailed, match=r"^n1 ended with code 3: port taken$"):
        check_running([failing])


@pytest.mark.process
async def test_a_child_that_does_not_end_is_waited_for_until_the_limit(tmp_path: Path) -> None:
    waiting, process = child(tmp_path, WAITING)
    try:
        check_running([waiting])
        with pytest.raises(ClusterFailed, match=r"^n1 did not end within 0 s$"):
            await ended(waiting, 0.0)
    finally:
        process.kill()
        process.wait()
