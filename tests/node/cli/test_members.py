"""Members change while the cluster runs, on real processes and by the commands of operating.md.

A sample that is quick; `make members` has all of it at length (`tests/members`).
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

import fifo
from tests.members import stories
from tests.support.machines import READY_S, Machines, eventually, said_by

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    made = Machines(tmp_path / "machines")
    yield made
    await made.close()


async def test_a_node_grows_into_three_under_load(machines: Machines) -> None:
    await stories.grow_one_to_three(machines)


async def test_a_stranger_replaces_a_dead_machine_with_two_commands(machines: Machines) -> None:
    await stories.replace_a_dead_one(machines)


async def test_a_change_goes_on_without_its_command_and_the_next_one_follows_it(
    machines: Machines,
) -> None:
    """Ctrl-C, a closed terminal, a playbook that runs again: the command says what is so."""
    await machines.begin(1)
    at = machines.url("n1")
    early = await machines.typing("member", "add", "n2", at=at)
    await reads(early, "waiting for n2, which has to be started with --join")
    early.send_signal(signal.SIGINT)
    assert (await said_by(early)).err.split("\n")[-2] == "no change has begun"

    await stories.join(machines, "n2", "n1")
    await is_waiting(machines, "n2", at)
    machines["n2"].pause()
    first = await machines.typing("member", "add", "n2", at=at)
    await reads(first, "n2 is")
    first.send_signal(signal.SIGINT)
    left = await said_by(first)
    assert first.returncode == 130
    assert "the change goes on: fifo member list shows it, fifo member undo gives it up" in left.err

    second = await machines.typing("member", "add", "n2", at=at)
    await reads(second, "this change is under way already")
    machines["n2"].resume()
    followed = await said_by(second)
    assert (second.returncode, followed.out) == (0, "n2 is a member: n1, n2\n"), followed.err
    third = await machines.member("add", "n2", at=at)
    assert third.out == followed.out
    assert third.err == "n2 is a member already; no change is made\n"

    await machines.member("remove", "n2", "--yes", at=at)
    async with fifo.connect(at) as client:
        with pytest.raises(fifo.InvalidArgument, match="it was removed, so empty its folder, and"):
            await client.change_members("add", "n2")


async def is_waiting(machines: Machines, name: str, at: str) -> None:
    async def waits() -> bool:
        listed = (await machines.member("list", "--json", at=at)).json
        return [one["name"] for one in listed["waiting"]] == [name]

    await eventually(waits, f"{name} does not wait to join")


async def reads(process: asyncio.subprocess.Process, words: str) -> None:
    """Wait until a command has said this."""
    assert process.stderr is not None
    async with asyncio.timeout(READY_S):
        while words not in (line := (await process.stderr.readline()).decode()):
            assert line, f"ended without {words!r}"
