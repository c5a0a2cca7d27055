"""Ways to put a bug back for a while: the only place that changes running code.

Owns three ways: another text in the source of a function, another value of an attribute, or any
context manager. Must not know any bug, or the hunts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from textwrap import dedent
from types import ModuleType
from typing import Any
from unittest.mock import patch

Switch = Callable[[], AbstractContextManager[Any]]
"""Called to switch a bug on; it is off again when the context ends."""


def edited(owner: ModuleType | type, function: str, old: str, new: str) -> Switch:
    """`function` of a module or class with `old` replaced by `new` in its source.

    Where `old` is not there exactly once any more, switching on raises LookupError: the registry
    has to follow the code.
    """

    @contextmanager
    def switched() -> Iterator[None]:
        original = getattr(owner, function)
        source = dedent(inspect.getsource(original))
        if source.count(old) != 1:
            place = f"{owner.__name__}.{function}"
            raise LookupError(f"{old!r} is {source.count(old)} times in {place}")
        code = compile(source.replace(old, new), inspect.getfile(owner), "exec")
        found: dict[str, Any] = {}
        exec(code, original.__globals__, found)
        setattr(owner, function, found[function])
        try:
            yield
        finally:
            setattr(owner, function, original)

    return switched


def entry(table: dict[str, Any], key: str, value: object) -> Switch:
    """Another value under a key of a table."""
    return lambda: patch.dict(table, {key: value})


def replaced(owner: Any, attribute: str, value: object) -> Switch:
    """`value` in the place of an attribute: a seam that the real code offers to tests."""
    return lambda: patch.object(owner, attribute, value)
