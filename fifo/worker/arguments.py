"""The parameters of a task: which come from the body, and which the worker gives.

Owns the reading of a handler's signature, the binding of a call to it, and the way from a decoded
body to arguments. Must not know formats (`bodies`) or how a value is converted (`converters`).
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fifo.client import InvalidArgument, Message
from fifo.worker.converters import Converter, converter
from fifo.worker.dependencies import Depends
from fifo.worker.errors import BadTask, Unfit

_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a handler, by where their values come from."""

    converters: Mapping[str, Converter]
    required: frozenset[str]
    messages: tuple[str, ...]
    dependencies: Mapping[str, Depends]
    order: tuple[str, ...]
    """Names of what comes from the body and may be given by position."""
    result: Converter
    """Converts what the handler returned, for a caller."""

    def __str__(self) -> str:
        return ", ".join(self.converters) or "none"

    def bind(self, task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of a call by their names. Raises InvalidArgument, as a call would TypeError."""
        if len(args) > len(self.order):
            raise InvalidArgument(f"{task}: takes {len(self.order)} arguments, not {len(args)}")
        bound = dict(zip(self.order, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.converters:
                raise InvalidArgument(f"{task}: has no argument {name!r}; there are: {self}")
            if name in bound:
                raise InvalidArgument(f"{task}: argument {name!r} is given twice")
            bound[name] = value
        for name in self.converters:
            if name in self.required and name not in bound:
                raise InvalidArgument(f"{task}: argument {name!r} is missing")
        return bound

    def convert(self, payload: Any) -> dict[str, Any]:
        """Arguments from what `bind` gave to a sender. Raises Unfit."""
        if not isinstance(payload, dict):
            raise Unfit(f"the body is no object of arguments, but {type(payload).__name__}")
        found = {}
        try:
            for name, value in payload.items():
                convert = self.converters.get(name)
                if convert is None:
                    raise Unfit(f"there is no argument {name!r:.80}; there are: {self}")
                found[name] = self._converted(name, convert, value)
        except RecursionError:
            raise Unfit(f"{name}: is nested too deeply") from None
        for name in self.required:
            if name not in found:
                raise Unfit(f"argument {name!r} is missing")
        return found

    def convert_alone(self, payload: Any) -> dict[str, Any]:
        """The only argument from a body of another program. Raises Unfit."""
        if len(self.converters) != 1:
            raise Unfit(
                "the message has no header 'task', so its body is one argument; the task takes"
                f" {len(self.converters)}: {self}"
            )
        return self.convert(dict.fromkeys(self.converters, payload))

    @staticmethod
    def _converted(name: str, convert: Converter, value: Any) -> Any:
        try:
            return convert(value)
        except Unfit as error:
            text = str(error)
            raise Unfit(f"{name}{text}" if text[:1] in ".[" else f"{name}: {text}") from error


def parameters_of(
    handler: Callable[..., Any], task: str, names: Mapping[str, Any] | None = None
) -> Parameters:
    """Read the parameters of a handler. Raises BadTask.

    `names` are those of the function that the handler was written in: annotations may use them.
    """
    try:
        hints = typing.get_type_hints(handler, localns=names, include_extras=True)
    except Exception as error:
        raise BadTask(f"task {task}: its annotations do not resolve: {error}") from error
    found: dict[str, Converter] = {}
    required, messages, dependencies, order = set(), [], {}, []
    for name, parameter in inspect.signature(handler).parameters.items():
        hint = hints.get(name, Any)
        needed = _dependency(hint, parameter.default)
        if parameter.kind not in _BY_NAME:
            raise BadTask(f"task {task}: {parameter} has no name in a body; name each parameter")
        if needed is not None:
            dependencies[name] = needed
        elif hint is Message:
            messages.append(name)
        else:
            try:
                found[name] = converter(hint)
            except BadTask as error:
                raise BadTask(f"task {task}: parameter {name!r}: {error}") from error
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                order.append(name)
            if parameter.default is inspect.Parameter.empty:
                required.add(name)
    return Parameters(
        found,
        frozenset(required),
        tuple(messages),
        dependencies,
        tuple(order),
        _result(hints.get("return", Any)),
    )


def _result(hint: Any) -> Converter:
    """The converter of a result; plain data where its type has no form in a body."""
    try:
        return converter(hint)
    except BadTask:
        return converter(Any)


def _dependency(hint: Any, default: Any) -> Depends | None:
    if isinstance(default, Depends):
        return default
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, Depends):
            return mark
    return None
