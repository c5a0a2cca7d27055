"""The options of `fifo queue declare` and `update`: one per row of `fifo.words.queue_options`.

Owns the translation of a row into an option of the command line, and of what was typed into the
keywords of `fifo.QueueSpec`. Must not know what an option does.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import fifo
from fifo.words.queue_options import BY_NAME, Kind, QueueOption
from node.cli.text import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_METAVARS: Final = {
    Kind.DURATION: "TIME",
    Kind.COUNT: "N",
    Kind.SIZE: "SIZE",
    Kind.QUEUE: "QUEUE",
    Kind.BACKOFF: "BACKOFF",
}
_PARSERS: Final[Mapping[Kind, Callable[[str], Any]]] = {
    Kind.DURATION: duration,
    Kind.COUNT: count,
    Kind.SIZE: size,
}
_CLEARED: Final = "none"

OPTIONS: Final = tuple(
    BY_NAME[name] for name in inspect.signature(fifo.QueueSpec).parameters if name in BY_NAME
)
"""The rows in the order of `fifo.QueueSpec`: what is asked for most comes first."""


def takes_options(*, live: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a queue, all in its keyword `options`; with `live` only those
    that may change on a live queue."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        rows = [option for option in OPTIONS if option.changeable or not live]
        own = [
            one
            for one in inspect.signature(command, eval_str=True).parameters.values()
            if one.name != "options"
        ]
        first, *others = own

        def run(**given: Any) -> None:
            options = spec_options({option.name: given.pop(option.name) for option in rows})
            command(**given, options=options)

        signature = inspect.Signature([first, *map(_parameter, rows), *others])
        run.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _parameter(option: QueueOption) -> inspect.Parameter:
    """Describe an option as a parameter of typer; its value is None where it was not given."""
    help_text = f"{option.help} (default {option.default_text})."
    if option.kind is Kind.FLAG:
        flag = option.name.replace("_", "-")
        words = typer.Option(f"--{flag}/--{option.off or f'no-{flag}'}", help=help_text)
        annotation: Any = Annotated[bool | None, words]
    else:
        metavar = _METAVARS.get(option.kind) or "|".join(option.choices)
        words = typer.Option(help=help_text, metavar=metavar, show_default=False)
        annotation = Annotated[str | None, words]
    return inspect.Parameter(
        option.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation
    )


def spec_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a QueueSpec from the options that were given; durations become seconds.

    `none` clears an option, unless it is one of its choices. Raises `UsageProblem`.
    """
    return {
        name: _value(BY_NAME[name], value) for name, value in given.items() if value is not None
    }


def _value(option: QueueOption, value: Any) -> Any:
    if isinstance(value, str):
        if value.lower() == _CLEARED and _CLEARED not in option.choices:
            return None
        if option.kind in _PARSERS:
            return _PARSERS[option.kind](value)
    return value
