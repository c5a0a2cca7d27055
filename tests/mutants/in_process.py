"""Hunts that call a test function in this process: its fixtures by the names of its parameters.

Owns those fixtures, the event loop of a coroutine, and the look whether what a test is called with
fits it, which is when the list of mutants is imported: a call that does not fit would raise in
every hunt, and look like a catch. Must not know any bug.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import (
    AsyncExitStack,
    ExitStack,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from pathlib import Path
from typing import Any, Final

import pytest

from node.cli import main
from tests.mutants.hunting import Scenario, named, scenario
from tests.node.cli.local import Done
from tests.support import rawclient

HUNT_SECONDS: Final = 600.0
"""Time of a coroutine, by the clock of its loop: a bug may have it wait, and others are hunted
after it."""

Fixture = Callable[..., Any]
"""Makes a context manager whose value the test gets; its own parameters are fixtures as well. One
of a coroutine's may be asynchronous, and needs others that are not."""


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fifo-mutant-") as folder:
        yield Path(folder)


@contextmanager
def _command() -> Iterator[Callable[..., Done]]:
    """The command line, in this process."""

    def cli(*arguments: str) -> Done:
        said, failed = io.BytesIO(), io.BytesIO()
        with (
            redirect_stdout(io.TextIOWrapper(said, write_through=True)),
            redirect_stderr(io.TextIOWrapper(failed, write_through=True)),
        ):
            code = main.run(arguments)
            return Done(code, said.getvalue().decode(), failed.getvalue().decode())

    yield cli


FIXTURES: Final[Mapping[str, Fixture]] = {
    "tmp_path": _folder,
    "monkeypatch": pytest.MonkeyPatch.context,
    "cli": _command,
}
"""Those that every test may have."""


def in_process(
    work: Callable[..., object],
    *values: object,
    fixtures: Mapping[str, Fixture] | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    within_s: float = HUNT_SECONDS,
) -> Scenario:
    """A hunt by a test: `values` are those of its parameters which are no fixtures, in order.

    `fixtures` are those of its own folder, and `within_s` bounds a coroutine by the clock of its
    loop. Raises TypeError where the values do not fit the test.
    """
    known = {**FIXTURES, **(fixtures or {})}
    parameters = inspect.signature(work).parameters
    needed = [name for name in parameters if name in known]
    own = [name for name in parameters if name not in known]
    if len(own) != len(values):
        raise TypeError(
            f"{named(work)} needs {len(own)} values ({', '.join(own) or 'none'}), not {len(values)}"
        )
    given = dict(zip(own, values, strict=True))

    def run() -> None:
        with ExitStack() as stack:
            made: dict[str, Any] = {}
            later = [name for name in needed if _is_asynchronous(known[name])]
            for name in needed:
                if name not in later:
                    _enter(name, known, stack, made)
            arguments = {name: made[name] for name in needed if name in made} | given
            if not inspect.iscoroutinefunction(work):
                work(**arguments)
                return
            coroutine = _awaited(work, arguments, {name: known[name] for name in later}, within_s)
            with asyncio.Runner(loop_factory=loop) as runner:
                runner.run(coroutine)

    return scenario(run, named(work), (work, *map(id, values)))


def each_case(work: Callable[..., object], **options: Any) -> Scenario:
    """A hunt by a test with all of its parameters, one after the other; `in_process` otherwise."""
    (mark,) = (one for one in getattr(work, "pytestmark", ()) if one.name == "parametrize")
    names, cases = mark.args
    order = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    own = [name for name in inspect.signature(work).parameters if name in order]
    hunts = []
    for case in cases:
        values = getattr(case, "values", case if len(order) > 1 else (case,))
        by_name = dict(zip(order, values, strict=True))
        hunts.append(in_process(work, *[by_name[name] for name in own], **options))

    def run() -> None:
        for hunt in hunts:
            hunt.work()

    return scenario(run, named(work), work)


def _is_asynchronous(make: Fixture) -> bool:
    return inspect.isasyncgenfunction(inspect.unwrap(make))


def _enter(
    name: str, known: Mapping[str, Fixture], stack: ExitStack, made: dict[str, Any]
) -> object:
    """Make a fixture, and before it those that it needs; once for each test."""
    if name not in made:
        others = [one for one in inspect.signature(known[name]).parameters if one in known]
        needed = {one: _enter(one, known, stack, made) for one in others}
        made[name] = stack.enter_context(known[name](**needed))
    return made[name]


async def _awaited(
    work: Callable[..., Any],
    arguments: dict[str, Any],
    asynchronous: Mapping[str, Fixture],
    within_s: float,
) -> None:
    """Run a coroutine with the fixtures of its loop; no raw client of it stays open."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(rawclient.close_all)
        for name, make in asynchronous.items():
            arguments[name] = await stack.enter_async_context(make())
        async with asyncio.timeout(within_s):
            await work(**arguments)
