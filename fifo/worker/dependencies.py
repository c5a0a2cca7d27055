"""Dependencies of handlers: what a task needs and no message brings.

Owns `Depends` and its two lives: one run of a handler, or the whole worker. A factory may be a
function, a coroutine function, or a generator of either kind, whose rest runs at the end of its
life. Must not know tasks or messages.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from fifo.client import InvalidArgument


@dataclass(frozen=True, slots=True)
class Depends:
    """A parameter that the worker makes: `db: Annotated[Database, fifo.Depends(open_database)]`.

    With `scope="worker"` it is made once for each process, before the first task that needs it, and
    ends when the worker has drained; else it is made for each run.
    """

    factory: Callable[[], Any]
    scope: Literal["run", "worker"] = "run"

    def __post_init__(self) -> None:
        if not callable(self.factory) or self.scope not in ("run", "worker"):
            raise InvalidArgument(
                f"Depends({self.factory!r:.60}, scope={self.scope!r:.20}): takes a callable without"
                " arguments, and the scope 'run' or 'worker'"
            )
        needed = [one.name for one in _parameters(self.factory) if one.default is one.empty]
        if needed:
            raise InvalidArgument(
                f"Depends({self.factory!r:.60}): its parameter {needed[0]!r} has no default: a"
                " factory is called without arguments"
            )


def _parameters(factory: Callable[[], Any]) -> list[inspect.Parameter]:
    """Parameters that a call has to give by name; none where a builtin does not show them."""
    try:
        found = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]


async def enter(stack: AsyncExitStack, factory: Callable[[], Any]) -> Any:
    """Make a dependency whose life ends with `stack`."""
    if inspect.isasyncgenfunction(factory):
        return await stack.enter_async_context(asynccontextmanager(factory)())
    if inspect.isgeneratorfunction(factory):
        return stack.enter_context(contextmanager(factory)())
    made = factory()
    return await made if inspect.isawaitable(made) else made


class Dependencies:
    """The dependencies of one worker."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._made: dict[Callable[[], Any], asyncio.Task[Any]] = {}

    async def fill(self, stack: AsyncExitStack, wanted: Mapping[str, Depends]) -> dict[str, Any]:
        """Values for parameters; those of one run end with `stack`."""
        found = {}
        for name, needed in wanted.items():
            if needed.scope == "worker":
                found[name] = await self._shared(needed.factory)
            else:
                found[name] = await enter(stack, needed.factory)
        return found

    async def _shared(self, factory: Callable[[], Any]) -> Any:
        making = self._made.get(factory)
        if making is None:
            making = self._made[factory] = asyncio.create_task(enter(self._stack, factory))
        try:
            return await asyncio.shield(making)
        except BaseException:
            if making.done() and self._made.get(factory) is making:
                del self._made[factory]  # The next run tries again.
            raise

    async def close(self) -> None:
        """End those of the worker, the last one first."""
        await self._stack.aclose()
