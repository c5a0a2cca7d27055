"""The procedures of docs/operating.md, "Members", each under load: what is typed, and what holds.

Owns the stories. In each a publisher and a consumer know the first addresses alone; nothing that
was confirmed is lost, and no pause is longer than an election takes. Must not know the processes:
`tests/support/machines.py` does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tests.support.machines import eventually, load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.machines import Load, Machines

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
