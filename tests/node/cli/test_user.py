"""`fifo user` against a running cluster: users, tokens and quotas, and what is asked before."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fifo
from node.cli.errors import USAGE
from node.cli.user import end_ms
from tests.support.cluster import running
from tests.support.users import EVERYTHING, user

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.node.cli.local import Done

DAY_MS = 86_400_000


@pytest.mark.cluster
async def test_an_operator_changes_users_of_a_running_cluster(
    cli: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = user("root", **EVERYTHING, operate=True)
    async with running(tmp_path, 1, users=(root,)) as cluster:
        address = str((await cluster.leader()).me.client)
        url = f"fifo://root:root-password@{address}"

        async def typed(*words: str) -> Done:
            return await asyncio.to_thread(cli, "user", *words, "--url", url)

        async def ok(*words: str) -> Done:
            done = await typed(*words)
            assert done.code == 0, done
            return done

        assert "no users in the log" in (await ok("list")).err
        asked = await typed("import")
        assert asked.code == USAGE
        assert "users are changed by `fifo user`, and by no file; confirm with --yes" in asked.line
        assert "1 users are in the log" in (await ok("import", "--yes")).out
        again = await typed("import", "--yes")
        assert (again.code, "a file is imported once" in again.line) == (1, True)

        done = await ok("add", "bot", "--token", "ci", "--publish", "q.*", "--quota", "sessions=5")
        added, token = done.out.splitlines()
        assert added == "user bot is added"
        assert token.startswith("token fifo_")
        first = f"fifo://{address}?token={token.split()[1]}"
        second_line = (await ok("add-token", "bot", "cd", "--ends", "90d")).out.splitlines()[0]
        [_, bot] = sorted((await ok("list", "--json")).json, key=lambda one: one["name"] == "bot")
        assert (bot["publish"], bot["shares"]) == (["q.*"], {"sessions": 5})
        assert [one["name"] for one in bot["tokens"]] == ["ci", "cd"]
        assert token.split()[1] not in (await ok("list", "--json")).out + (await ok("list")).out

        await ok("set", "bot", "--publish", "q", "--declare", "q", "--quota", "sessions=")
        async with fifo.connect(first) as client:
            await client.declare(fifo.QueueSpec("q"))
            assert (
                await ok("revoke-token", "bot", "ci")
            ).out == "token ci of user bot is revoked\n"
            with pytest.raises(fifo.FifoError):
                await client.publish("q", b"x", timeout=5)
        async with fifo.connect(f"fifo://{address}?token={second_line.split()[1]}") as client:
            await client.publish("q", b"x")

        monkeypatch.setattr("sys.stdin", io.StringIO("s3cret\n"))
        done = await ok("set", "bot", "--password", "--publish", "")
        assert "s3cret" not in done.out + done.err
        async with fifo.connect(f"fifo://bot:s3cret@{address}") as client:
            with pytest.raises(fifo.PermissionDenied):
                await client.publish("q", b"x")
        assert "no quota 'cars'" in (await typed("set", "bot", "--quota", "cars=1")).line
        assert "operate = true left" in (await typed("remove", "root", "--yes")).line
        await ok("remove", "bot", "--yes")
        unknown = await typed("set", "bot", "--monitor")
        assert "there is no user 'bot'; there are: root" in unknown.line


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("add", "ann"), "ann could never connect: give --password, --token NAME"),
        (("add", "ann", "--password", "--ends", "1d"), "--ends is the end of a token"),
        (("set", "ann"), "nothing to change: give an option"),
        (("set", "ann", "--password", "--no-password"), "exclude each other"),
        (("set", "ann", "--quota", "queues"), "'queues' is not a share; write it as in"),
        (("add-token", "ann", "ci", "--ends", "2001-01-01"), "is over already"),
        (("add-token", "ann", "ci", "--ends", "soon"), "'soon' is not a duration"),
    ],
)
def test_a_command_that_makes_no_sense_needs_no_cluster(
    cli: Callable[..., Done], words: tuple[str, ...], text: str
) -> None:
    done = cli("user", *words)
    assert (done.code, text in done.line) == (USAGE, True), done


def test_a_token_ends_after_a_time_or_with_a_day() -> None:
    noon_s = 1_800_000_000.0
    assert end_ms("90d", noon_s) == int(noon_s * 1000) + 90 * DAY_MS
    assert end_ms("2027-01-15", noon_s) == 1_800_057_600_000
