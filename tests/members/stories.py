"""The procedures of docs/operating.md, "Members", each under load: what is typed, and what holds.

Owns the stories. In each a publisher and a consumer know the first addresses alone; nothing that
was confirmed is lost, and no pause is longer than an election takes. Must not know the processes:
`tests/support/machines.py` does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from bench.loopback import free_ports
from tests.support.machines import Load, Machines, eventually, load

PAUSE_S: Final = 5.0
"""Longest pause of confirms that a story allows: an election takes 0.6 to 1 s, and a busy machine
adds to that; two elections in a row on a quiet one do not fit."""


@contextlib.asynccontextmanager
async def loaded(machines: Machines, *names: str) -> AsyncIterator[Load]:
    """Load at these machines meanwhile, which loses nothing and is not held up."""
    async with load(machines.url(*names)) as seen:
        yield seen
    assert seen.confirmed
    assert not seen.lost
    assert seen.longest_pause_s < PAUSE_S, seen.longest_pause_s


async def join(machines: Machines, name: str, at: str) -> None:
    """The first of the two commands: on the new machine."""
    await machines.new(name).start(machines[at])


async def grow_one_to_three(machines: Machines) -> Load:
    """1 to 3, a member at a time."""
    await machines.begin(1)
    at = machines.url("n1")
    async with loaded(machines, "n1") as seen:
        for name in ("n2", "n3"):
            await join(machines, name, "n1")
            await machines.member("add", name, at=at)
        assert await machines.members(at) == {"n1", "n2", "n3"}
        await machines["n3"].serves()
        await machines["n1"].kill()  # The one address that the load was given.
        await machines["n2"].serves()
        assert await machines.members(machines.url("n2")) == {"n1", "n2", "n3"}
        begun = len(seen.confirmed)

        async def goes_on() -> bool:
            return len(seen.confirmed) > begun

        await eventually(goes_on, "the clients did not find the new members")
    return seen


async def replace_a_dead_one(machines: Machines) -> Load:
    """A machine is lost for good; a new one takes its place by two commands."""
    await machines.begin(3)
    at = machines.url("n1", "n2", "n3")
    async with loaded(machines, "n1", "n2", "n3") as seen:
        await machines["n3"].kill()
        await join(machines, "n4", "n1")
        await machines.member("replace", "n3", "n4", "--yes", at=at)
        assert await machines.members(at) == {"n1", "n2", "n4"}
        await machines["n4"].serves()
        # The lost one comes back after all, and disturbs no member.
        await machines["n3"].start()

        async def knows() -> bool:
            return "event=removed" in machines["n3"].said()

        await eventually(knows, "the removed one does not know")
    return seen


async def grow_three_to_five_and_back(machines: Machines) -> Load:
    """3 to 5, and 5 to 3: one of those that go leads."""
    await machines.begin(3)
    at = machines.url("n1", "n2", "n3")
    async with loaded(machines, "n1", "n2", "n3") as seen:
        for name in ("n4", "n5"):
            await join(machines, name, "n2")
            await machines.member("add", name, at=at)
        five = {"n1", "n2", "n3", "n4", "n5"}
        assert await machines.members(at) == five
        await machines["n5"].serves()
        at = machines.url(*sorted(five))
        leader = await machines.leader(at)
        other = next(name for name in sorted(five) if name != leader)
        for name in (leader, other):
            await machines.member("remove", name, "--yes", at=at)
            await machines[name].stop()
        assert await machines.members(at) == five - {leader, other}
    return seen


async def replace_a_live_leader(machines: Machines) -> Load:
    """A machine that is up, and leads, is replaced."""
    await machines.begin(3)
    at = machines.url("n1", "n2", "n3")
    async with loaded(machines, "n1", "n2", "n3") as seen:
        leader = await machines.leader(at)
        await join(machines, "n4", leader)
        await machines.member("replace", leader, "n4", "--yes", at=at)
        assert await machines.members(at) == {"n1", "n2", "n3", "n4"} - {leader}
    return seen


async def move_a_member(machines: Machines) -> Load:
    """A member gets other addresses; no other node restarts."""
    await machines.begin(3)
    at = machines.url("n1", "n2", "n3")
    async with loaded(machines, "n1", "n2", "n3") as seen:
        leader = await machines.leader(at)
        name = next(one for one in ("n1", "n2", "n3") if one != leader)
        moves = machines[name]
        await moves.stop()
        moves.ports = free_ports(3)
        moves.write(*(machines[one] for one in ("n1", "n2", "n3") if one != name))
        await moves.start()
        await machines.member(
            "move",
            name,
            "--peer",
            moves.peer,
            "--client",
            moves.client,
            "--http",
            moves.http,
            at=at,
        )
        await moves.serves()
        listed = (await machines.member("list", "--json", at=at)).json["members"]
        assert {one["name"]: one["client"] for one in listed}[name] == moves.client
    return seen


async def a_leader_dies_amid_a_change(machines: Machines) -> Load:
    """The leader is killed right behind the beginning of a change: the next one ends it."""
    await machines.begin(3)
    at = machines.url("n1", "n2", "n3")
    async with loaded(machines, "n1", "n2", "n3") as seen:
        leader = await machines.leader(at)
        other = next(one for one in ("n1", "n2", "n3") if one != leader)
        await join(machines, "n4", other)
        await machines.member("add", "n4", "--no-wait", at=at)
        await machines[leader].kill()

        async def ended() -> bool:
            found = await machines.typed("member", "list", "--json", at=at)
            return found.code == 0 and not found.json["wanted"]

        await eventually(ended, "the change does not end")
        members = await machines.members(at)
        assert members in ({"n1", "n2", "n3", "n4"}, {"n1", "n2", "n3"}), members
        await machines[leader].start()
        await machines[leader].serves()
    return seen


async def all_machines_are_replaced(machines: Machines) -> Load:
    """Each of three machines is replaced, one after the other; the clients know none of the new
    ones by their URL, and lose none of their connections' news."""
    await machines.begin(3)
    async with loaded(machines, "n1", "n2", "n3") as seen:
        now = ["n1", "n2", "n3"]
        for number in (4, 5, 6):
            at = machines.url(*now)
            old, new = now[0], f"n{number}"
            await join(machines, new, now[1])
            await machines.member("replace", old, new, "--yes", at=at)
            await machines[old].kill()
            now = [*now[1:], new]
            await machines[new].serves()
        assert await machines.members(machines.url(*now)) == {"n4", "n5", "n6"}
        begun = len(seen.confirmed)

        async def goes_on() -> bool:
            return len(seen.confirmed) > begun

        await eventually(goes_on, "the clients did not find the new members")
    return seen


async def a_change_is_undone(machines: Machines) -> Load:
    """The new node dies before it is level: the change is given up."""
    await machines.begin(3)
    at = machines.url("n1", "n2", "n3")
    async with loaded(machines, "n1", "n2", "n3") as seen:
        await join(machines, "n4", "n1")

        async def waits() -> bool:
            listed = (await machines.member("list", "--json", at=at)).json
            return [one["name"] for one in listed["waiting"]] == ["n4"]

        await eventually(waits, "n4 does not wait to join")
        machines["n4"].pause()
        adding = asyncio.ensure_future(machines.typed("member", "add", "n4", at=at))

        async def is_under_way() -> bool:
            return bool((await machines.member("list", "--json", at=at)).json["change"])

        await eventually(is_under_way, "the change does not begin")
        refused = await machines.typed("member", "remove", "n3", "--yes", at=at)
        assert refused.code == 1
        assert "is under way; wait for its end, or undo it" in refused.err
        await machines.member("undo", at=at)
        added = await adding
        assert added.code == 1
        assert "the change was given up (fifo member undo)" in added.err
        assert await machines.members(at) == {"n1", "n2", "n3"}
    return seen


async def grow_by_files(folder: Path, files: Mapping[str, str], secret: str, token: str) -> None:
    """Start each node by its file, the first three together; those behind them join, are added by
    a user with this token, and serve. Names of hosts become addresses of this machine."""
    machines = Machines(folder)
    try:
        for name in files:
            machines.new(name)
        for name, text in files.items():
            machines.give(name, text, secret)
            await machines[name].start()
        first, later = list(files)[:3], list(files)[3:]
        for name in first:
            await machines[name].serves()
        at = f"{machines.url(*first)}?token={token}"
        for name in later:
            await machines.member("add", name, at=at)
            await machines[name].serves()
        assert await machines.members(at) == set(files)
    finally:
        await machines.close()


STORIES: Final[dict[str, Callable[[Machines], Awaitable[Load]]]] = {
    story.__name__.replace("_", " "): story
    for story in (
        grow_one_to_three,
        grow_three_to_five_and_back,
        replace_a_dead_one,
        replace_a_live_leader,
        move_a_member,
        a_leader_dies_amid_a_change,
        all_machines_are_replaced,
        a_change_is_undone,
    )
}
"""Every story, by its name for people."""
