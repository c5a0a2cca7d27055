"""Lists of a real cluster as people see them: filtered, watched, narrow, or in a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest

import fifo
from node.cli.people import SessionOrder, in_order
from tests.node.cli.local import WAIT_S, Local

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def test_queues_are_filtered_and_sorted(local: Local) -> None:
    for name, bodies in (("shop.a", "x"), ("shop.b", "xyz"), ("shop.c", ""), ("mail", "xy")):
        local.ok("queue", "declare", name)
        for body in bodies:
            local.ok("publish", name, "--body", body)
    local.ok("queue", "pause", "mail")

    def listed(*options: str) -> list[str]:
        return [queue["name"] for queue in local.ok("queue", "list", *options, "--json").json]

    assert listed() == ["mail", "shop.a", "shop.b", "shop.c"]
    assert listed("shop.*", "--not-empty") == ["shop.a", "shop.b"]
    assert listed("--sort", "ready") == ["shop.b", "mail", "shop.a", "shop.c"]
    assert listed("--sort", "ready", "--limit", "1") == ["shop.b"]
    assert listed("--paused") == ["mail"]
    assert listed("--unconsumed", "*.c") == ["shop.c"]
    assert "'size' is not one of 'name'" in local.type("queue", "list", "--sort", "size").line
    for name in ("shop.a", "shop.b", "shop.c", "mail"):
        local.ok("queue", "delete", name, "--yes")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("queue", "list"), b"watched"),
        (("locks", "watched"), b"none"),
        (("status",), b"leader"),
        (("cluster", "status"), b"leader"),
        (("queue", "list", "--json"), b'"name":"watched"'),
        (("message", "find", "watched"), b"none"),
        (("user", "list", "--json"), b"[]"),
    ],
)
def test_a_watched_list_is_shown_again_until_ctrl_c(
    local: Local, arguments: tuple[str, ...], expected: bytes
) -> None:
    local.ok("queue", "declare", "watched")
    with subprocess.Popen(
        local.command(*arguments, "--watch"),
        cwd=local.folder,
        env=local.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as watching:
        assert watching.stdout is not None
        seen = 0
        while seen < 2:
            seen += expected in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=WAIT_S)
    assert (watching.returncode, err) == (0, b"")
    local.ok("queue", "delete", "watched", "--yes")


def test_a_watched_list_fits_its_terminal_and_leaves_it_as_it_was(local: Local) -> None:
    local.ok("queue", "declare", "narrow")
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with subprocess.Popen(
        local.command("queue", "list", "--watch"),
        cwd=local.folder,
        env={**local.environment, "TERM": "xterm", "COLUMNS": "40", "LINES": "24"},
        stdin=side,
        stdout=side,
        stderr=side,
    ) as watching:
        os.close(side)
        shown = b""
        while b"hidden," not in shown and watching.poll() is None:
            shown += os.read(terminal, 65_536)
        watching.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # EIO: the other side is closed.
            while chunk := os.read(terminal, 65_536):
                shown += chunk
        assert watching.wait(WAIT_S) == 0
    os.close(terminal)
    enter, leave = b"\x1b[?1049h", b"\x1b[?1049l"
    assert shown.index(enter) < shown.index(b"narrow") < shown.rindex(leave)
    assert b"bytes" not in shown.split(b"hidden")[0]
    local.ok("queue", "delete", "narrow", "--yes")


def completed(local: Local, shell: str, line: str) -> str:
    """Complete a line in a shell."""
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    done = subprocess.run(
        local.command(),
        cwd=local.folder,
        env={**local.environment, "_FIFO_COMPLETE": f"complete_{shell}", **asked},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(local: Local, shell: str) -> None:
    found = completed(local, shell, "fifo queue li")
    assert "list" in found
    assert "delete" not in found


@pytest.mark.parametrize(
    ("shell", "command"), [("bash", "queue show"), ("zsh", "publish"), ("fish", "move shop.orders")]
)
def test_the_shell_completes_names_of_queues(local: Local, shell: str, command: str) -> None:
    names = ("shop.orders", "shop.returns", "stock")
    for name in names:
        local.ok("queue", "declare", name)
    found = completed(local, shell, f"fifo {command} sh")
    assert [name in found for name in names] == [True, True, False]
    for name in names:
        local.ok("queue", "delete", name, "--yes")


def test_the_shell_completes_ids_of_sessions(local: Local) -> None:
    async def ask(url: str) -> tuple[str, list[str]]:
        async with fifo.connect(url, name="a worker") as client:
            (own,) = [one.session for one in await client.sessions() if one.client == "a worker"]
            line = f"fifo session end {own[:4]}"
            return own, (await asyncio.to_thread(completed, local, "bash", line)).split()

    session, found = asyncio.run(ask(local.status()["url"]))
    assert found == [session]


def test_a_completion_offers_no_session_of_its_own(local: Local) -> None:
    assert completed(local, "bash", "fifo session end ").strip() == ""


@pytest.mark.parametrize("line", ["fifo queue show --url fifo://127.0.0.1:1 o", "fifo publish "])
def test_a_completion_without_a_cluster_is_empty_and_silent(tmp_path: Path, line: str) -> None:
    assert completed(Local(tmp_path, 0), "bash", line).strip() == ""


def test_a_body_reaches_a_pipe_whole_and_a_terminal_without_control_characters(
    local: Local,
) -> None:
    local.ok("queue", "declare", "evil")
    body = "red \x1b[31m\nsecond"
    for _ in range(2):
        local.ok("publish", "evil", "--body", body, "--key", "k\x1b[2J")
    assert r"k\x1b[2J" in local.ok("peek", "evil").out
    assert local.ok("consume", "evil", "--count", "1").out == body + "\n"
    terminal, side = pty.openpty()
    done = subprocess.run(
        local.command("consume", "evil", "--count", "1"),
        cwd=local.folder,
        env=local.environment,
        stdout=side,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(side)
    assert done.returncode == 0
    assert os.read(terminal, 4_096) == b"red \\x1b[31m\r\nsecond\r\n"
    os.close(terminal)
    local.ok("queue", "delete", "evil", "--yes")


def test_sessions_are_listed_and_ended(local: Local) -> None:
    listed = local.ok("sessions", "--json").json
    assert listed, "that of the command itself"
    assert local.ok("sessions", "--user", "absent", "--json").json == []
    assert listed[-1]["use"] == "none"
    line = local.type("session", "end", "ffffffff00", "--yes").line
    assert "there is no session that begins with 'ffffffff00'" in line
    assert local.ok("users", "--json").json == []


@pytest.mark.parametrize(
    ("sort", "numbers"),
    [
        (SessionOrder.NUMBER, [1, 2, 3]),
        (SessionOrder.USER, [2, 3, 1]),
        (SessionOrder.CONSUMERS, [3, 1, 2]),
        (SessionOrder.HELD, [2, 1, 3]),
    ],
)
def test_sessions_are_sorted_by_a_field_and_then_by_number(
    sort: SessionOrder, numbers: list[int]
) -> None:
    found = [
        fifo.SessionView(number=3, user="a", consumers=2, held=0),
        fifo.SessionView(number=1, user="b", consumers=0, held=0),
        fifo.SessionView(number=2, user="a", consumers=0, held=5),
    ]
    assert [one.number for one in in_order(found, sort)] == numbers
