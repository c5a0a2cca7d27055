"""Help of every command, and every failure as one line and an exit code."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

import fifo
from fifo.client.views import view
from node.cli import main
from node.cli.errors import FAILED, INTERRUPTED, USAGE
from node.cli.serve import _warn_of_unproven_peers, _warn_of_wildcards
from node.config import cluster_config, load_config
from tests.support.privileges import ordinary_user
from tests.support.users import user

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.node.cli.local import Done

    Cli = Callable[..., Done]

MODULES_MAX = 210
"""Modules of the project at the start of a command: 184 when this was written, 205 before."""

MEMBER = "list add remove replace move undo"
MESSAGE = "show find retry scan unlock delay cancel delete terminate move copy resend"

PRINTS_DATA = {
    "apply",
    "backup inspect",
    "restore",
    "verify",
    "doctor",
    "entry show",
    "entry skip",
    "audit",
    "bench",
    "cluster start",
    "cluster status",
    "config check",
    "users",
    "sessions",
    "consume",
    "consumers",
    "dead-letters",
    "delayed",
    "locks",
    *(f"member {verb}" for verb in MEMBER.split()),
    *(f"message {verb}" for verb in MESSAGE.split()),
    "move",
    "peek",
    "producers",
    "publish",
    "queue list",
    "queue show",
    "redrive",
    "status",
    "upgrade status",
    "user hash",
    "user list",
    "user token",
}


NOT_WATCHED = {
    "audit": "it grows at its end: --follow",
    "message scan": "it shows one index of the log",
    **dict.fromkeys(
        ("entry show", "message show", "queue show"), "it shows one thing, and is no list"
    ),
    "backup inspect": "it shows a file",
    "upgrade status": "it is a verdict, of every node",
    **dict.fromkeys(("doctor", "config check", "verify"), "it is a verdict"),
    **dict.fromkeys(("user hash", "user token"), "it makes something"),
    **dict.fromkeys(
        ("apply", "bench", "cluster start", "consume", "move", "publish", "redrive", "restore"),
        "it acts",
    ),
    "entry skip": "it acts",
    "member list": "the commands that change members follow a change to its end",
    **{f"member {verb}": "it acts" for verb in MEMBER.split()[1:]},
    **{f"message {verb}": "it acts" for verb in MESSAGE.split()[2:] if verb != "scan"},
}
"""Commands that print data and are no list that changes."""


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command."""
    group = get_command(main.app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


ALL = list(commands())
GROUPS = sorted({words[:1] for words in ALL if len(words) > 1})


def test_the_command_line_has_exactly_these_commands() -> None:
    cluster = "start status stop clean kill pause resume restart logs init adopt rebuild"
    queue = "declare list show update purge delete pause resume"
    single = (
        "serve status publish consume peek locks delayed dead-letters consumers producers redrive"
        " apply export doctor audit move bench forget-producer transfer-leadership users sessions"
        " worker restore verify"
    )
    user = "hash token password add set remove add-token revoke-token list import"
    wanted = [f"cluster {verb}" for verb in cluster.split()]
    wanted += [f"user {verb}" for verb in user.split()]
    wanted += [f"queue {verb}" for verb in queue.split()]
    wanted += ["session end", "config check", "backup inspect", "upgrade status", "upgrade finish"]
    wanted += ["entry show", "entry skip"]
    wanted += [f"member {verb}" for verb in MEMBER.split()]
    wanted += [f"message {verb}" for verb in MESSAGE.split()]
    wanted += single.split()
    assert sorted(wanted) == sorted(" ".join(words) for words in ALL)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
@pytest.mark.slow
def test_every_command_has_help_with_an_example_of_itself(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli(*words, "--help")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "Example: fifo " in text
    assert f"fifo {' '.join(words)}" in text.partition("Example:")[2]


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), *GROUPS, *ALL], ids=" ".join)
def test_help_is_not_truncated_and_names_every_option(
    cli: Cli, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = cli(*words, "--help")
    assert "\N{HORIZONTAL ELLIPSIS}" not in done.out
    assert "..." not in done.out.replace("[ARGS]...", "")
    command: Any = get_command(main.app)
    for word in words:
        command = command.commands[word]
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        for name in (*parameter.opts, *parameter.secondary_opts):
            assert name in done.out or not name.startswith("-")


def test_every_list_can_be_watched() -> None:
    watched = set()
    everything: Any = get_command(main.app)
    for words in ALL:
        command = everything
        for word in words:
            command = command.commands[word]
        if any("--watch" in parameter.opts for parameter in command.params):
            watched.add(" ".join(words))
    assert watched == PRINTS_DATA - NOT_WATCHED.keys()


def test_brackets_in_help_are_not_markup(cli: Cli) -> None:
    assert "[[node]]" in cli("serve", "--help").out


def test_the_version_is_printed(cli: Cli) -> None:
    done = cli("--version")
    assert (done.code, done.out) == (0, f"fifo {version('fifo-quorum')}\n")


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_output_to_a_full_disk_is_reported_as_such(tmp_path: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "node", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=tmp_path,
        )
    assert (done.returncode, done.stderr) == (FAILED, "fifo: No space left on device\n")


@pytest.mark.process
def test_a_closed_stdout_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m node user token >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize("words", ALL, ids=" ".join)
@pytest.mark.slow
def test_every_command_that_prints_data_can_print_json(words: tuple[str, ...]) -> None:
    command: Any = get_command(main.app)
    for word in words:
        command = command.commands[word]
    options = {name for parameter in command.params for name in parameter.opts}
    assert ("--json" in options) == (" ".join(words) in PRINTS_DATA)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["cluster", "kil"], "fifo cluster: No such command 'kil'. Did you mean 'kill'?;"),
        (["cluster", "kill"], "fifo cluster kill: Missing argument 'N'; see: fifo cluster kill --"),
        (["queue", "declare", "q", "--lokc", "1"], "fifo queue declare: No such option: --lokc"),
        (["queue", "declare", "q", "--lock", "soon"], "fifo: 'soon' is not a duration; write it"),
        (["queue", "update", "q"], "fifo: nothing to change: give at least one option"),
        (["publish", "q"], "fifo: no body or several: give exactly one of --body"),
        (
            ["publish", "q", "--body", "x", "--header", "h"],
            "fifo: --header 'h' is not a header; write it as",
        ),
        (["publish", "q", "--body", "x", "--priority", "10"], "fifo publish: Invalid value for"),
        (
            ["publish", "q", "--lines", "f", "--dedup-id", "d"],
            "fifo: --dedup-id names one message",
        ),
        (
            ["consume", "q", "--ack", "--nack"],
            "fifo: --ack, --nack, --release and --terminate exclude",
        ),
        (
            ["consume", "q", "--nack"],
            "fifo: --nack and --release redeliver the messages without end",
        ),
        (["consume", "q", "--prefetch", "0"], "fifo: prefetch: must be from 1 to 65535, not 0"),
        (
            ["bench", "--publishers", "0", "--consumers", "0"],
            "fifo: 0 publishers and 0 consumers leave",
        ),
        (["bench", "--size", "8"], "fifo bench: Invalid value for '--size'"),
        (["bench", "--prefetch", "all"], "fifo: --prefetch: must be from 1 to 65535, or auto, not"),
        (["bench", "--pace", "9", "--consumers", "0"], "fifo: --pace needs publishers and"),
        (["serve", "--node", "n1"], "fifo: --node needs --config"),
        (["status", "--url", "http://x:1"], "fifo: url: must begin with fifo:// or fifos://"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    cli: Cli, arguments: list[str], line: str
) -> None:
    done = cli(*arguments)
    assert done.code == USAGE
    assert done.line.startswith(line)


@pytest.mark.parametrize("arguments", [[], ["cluster"], ["queue"]])
def test_a_group_without_a_verb_shows_its_verbs(cli: Cli, arguments: list[str]) -> None:
    done = cli(*arguments)
    assert done.code == USAGE
    assert "Commands" in done.out
    assert done.err == ""


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["queue", "list"], ["publish", "q", "--body", "x"], ["consume", "q"], ["bench"]],
)
def test_a_missing_address_is_an_error_with_a_remedy(cli: Cli, arguments: list[str]) -> None:
    done = cli(*arguments)
    assert done.code == FAILED
    assert done.line == (
        "fifo: no cluster address: start a cluster with `fifo cluster start`, or pass"
        " --url fifo://host:port"
    )


@pytest.mark.slow
def test_a_missing_or_oversized_file_is_named(cli: Cli, tmp_path: Path) -> None:
    done = cli("publish", "q", "--file", "gone.txt")
    assert (done.code, done.line) == (
        FAILED,
        "fifo: gone.txt cannot be read: No such file or directory",
    )
    (tmp_path / "big").write_bytes(b"x" * ((1 << 20) + 1))
    done = cli("publish", "q", "--file", "big")
    assert done.line == "fifo: big is too large for a message: at most 1048576 bytes"


@pytest.mark.slow
def test_an_unexpected_error_is_one_line_and_names_the_debug_switch(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(url: str | None) -> str:
        raise ZeroDivisionError("an\naccident")

    monkeypatch.setattr("node.cli.status.choose_url", broken)
    done = cli("status")
    assert done.code == FAILED
    assert done.line == (
        "fifo: unexpected ZeroDivisionError: an accident; set FIFO_DEBUG=1 for the traceback"
    )
    monkeypatch.setenv("FIFO_DEBUG", "1")
    assert "Traceback" in cli("status").err


def test_an_interrupted_publish_reports_the_confirmed_lines(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(url: str, work: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("node.cli.publish.run", interrupted)
    (tmp_path / "lines").write_text("a\nb\n", "utf-8")
    done = cli("publish", "q", "--lines", "lines", "--url", "fifo://127.0.0.1:1")
    assert done.code == INTERRUPTED
    assert "confirmed 0 lines" in done.err


def test_an_interrupted_redrive_reports_that_it_continues(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:
        async def redrive(self, *_: object, **__: object) -> fifo.RedriveView:
            asyncio.get_running_loop().call_soon(cancel_all)
            return view(fifo.RedriveView, {"status": "running", "moved": 0})

    def cancel_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    def run(url: str | None, work: Callable[[Any], Coroutine[Any, Any, object]]) -> object:
        try:
            return asyncio.run(work(Client()))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("node.cli.admin.run", run)
    done = cli("redrive", "q.dlq", "--url", "fifo://127.0.0.1:1")
    assert done.code == INTERRUPTED
    assert (
        done.line == "the redrive continues in the cluster; cancel it: fifo redrive q.dlq --cancel"
    )


@pytest.mark.process
def test_a_closed_pipe_prints_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m node queue declare --help | true"
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stderr == ""


def test_serve_refuses_an_unknown_or_missing_node_name(cli: Cli, tmp_path: Path) -> None:
    from tests.node.test_config import EXAMPLE

    done = cli("serve", "--config", str(EXAMPLE))
    assert done.code == USAGE
    assert done.line.endswith("choose one with --node: n1, n2, n3")
    done = cli("serve", "--config", str(EXAMPLE), "--node", "n9")
    assert done.code == FAILED
    assert done.line.endswith("no [[node]] is named 'n9'; there are: n1, n2, n3")
    assert cli("serve", "--config", "none.toml").line == "fifo: none.toml: there is no such file"


def test_serve_names_the_port_that_is_in_use(cli: Cli, base_port: int) -> None:
    with socket.create_server(("127.0.0.1", base_port + 2)):
        done = cli("serve", "--base-port", str(base_port))
    assert done.code == FAILED
    assert done.line.startswith(f"fifo: port {base_port + 2} (peer port of n1) is already in use;")


def test_serve_names_an_address_of_another_machine(cli: Cli, tmp_path: Path) -> None:
    from tests.node.test_config import EXAMPLE

    text = EXAMPLE.read_text("utf-8").replace(
        'client = "127.0.0.1:7101"', 'client = "203.0.113.7:7101"'
    )
    config = tmp_path / "c.toml"
    config.write_text(text.replace("[raft]", '[[user]]\nname = "u"\nloopback = true\n[raft]'))
    line = cli("serve", "--config", str(config), "--node", "n1").line
    assert line.startswith("fifo: client address 203.0.113.7:7101 of n1 cannot be used: ")
    assert line.endswith("; configure an address of this machine")


def test_users_without_a_secret_of_the_nodes_are_logged_as_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = cluster_config(3, 7100, tmp_path)
    _warn_of_unproven_peers(plain)
    _warn_of_unproven_peers(replace(plain, users=(user("ann"),), secret=b"s" * 16))
    assert not caplog.text, "without users every program may do everything anyway"
    _warn_of_unproven_peers(replace(plain, users=(user("ann"),)))
    assert "event=peers_unproven" in caplog.text


def test_a_wildcard_address_is_logged_as_a_warning(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    from tests.node.test_config import EXAMPLE

    text = EXAMPLE.read_text("utf-8").replace(
        'client = "127.0.0.1:7111"', 'client = "0.0.0.0:7111"'
    )
    config = tmp_path / "c.toml"
    config.write_text(text.replace("[raft]", '[[user]]\nname = "u"\nloopback = true\n[raft]'))
    _warn_of_wildcards(load_config(config))
    assert "event=wildcard_address node=n2 client=0.0.0.0:7111" in caplog.text
    caplog.clear()
    _warn_of_wildcards(load_config(EXAMPLE))
    assert not caplog.text


def test_serve_refuses_a_data_folder_that_is_a_file(
    cli: Cli, base_port: int, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("", encoding="utf-8")
    done = cli("serve", "--base-port", str(base_port), "--data-dir", "data")
    assert done.code == FAILED
    assert "data folder" in done.line
    assert "is a file, not a folder" in done.line


def test_serve_refuses_a_read_only_data_folder(cli: Cli, base_port: int, tmp_path: Path) -> None:
    serve = "serve", "--base-port", str(base_port), "--data-dir"
    (tmp_path / "file").touch()
    assert "is a file, not a folder" in cli(*serve, "file").line  # imports everything as root first
    with ordinary_user() as folder:
        (folder / "data").mkdir(mode=0o500)
        done = cli(*serve, str(folder / "data"))
    assert done.code == FAILED
    assert "cannot be written" in done.line


@pytest.mark.slow
def test_cluster_commands_without_a_cluster_name_the_start_command(cli: Cli) -> None:
    for arguments in (["status"], ["stop"], ["kill", "1"], ["restart", "1"], ["logs", "1"]):
        done = cli("cluster", *arguments)
        assert done.code == FAILED
        assert done.line == "fifo: no cluster was started in .fifo; start one: fifo cluster start"
    assert cli("cluster", "stop", "--dir", "x").line.endswith("fifo cluster start --dir x")
    assert (
        cli("cluster", "clean").out == "nothing to delete in .fifo: no cluster was started there\n"
    )


def test_cluster_start_names_port_and_node_of_a_port_in_use(cli: Cli, base_port: int) -> None:
    with socket.create_server(("127.0.0.1", base_port + 13)):
        done = cli("cluster", "start", "--base-port", str(base_port), "--detach")
    assert done.code == FAILED
    assert done.line == (
        f"fifo: port {base_port + 13} (http port of n2) is already in use;"
        " stop what listens there, or choose others with --base-port"
    )


@pytest.mark.slow  # a process of its own, 0.5 s of CPU
def test_the_command_line_loads_no_part_of_a_node_before_a_command_asks_for_it() -> None:
    # Imported within the command that needs it: each start of any other would pay for it.
    heavy = (
        *("fifo.machine", "node.raft", "node.broker", "node.peers", "node.http", "pysyncobj"),
        *("node.journal.records", "node.journal.recovery", "node.backup.file", "crc32c"),
    )
    script = "import sys, node.cli.main; print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert [name for name in said if name.startswith(heavy)] == []
    assert len([name for name in said if name.startswith(("fifo", "node"))]) < MODULES_MAX
