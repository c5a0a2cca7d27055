"""Options of commands that are rows of a table in `fifo.words`: of a queue, of a consumer.

Owns the translation of a row into an option of the command line, and of what was typed into the
keywords of the client. Must not know what an option does.
"""

from __future__ import annotations

import inspect
import shlex
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fifo.words.options import Kind, Option
from node.cli.text import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_METAVARS: Final = {
    Kind.DURATION: "TIME",
    Kind.COUNT: "N",
    Kind.SIZE: "SIZE",
    Kind.QUEUE: "QUEUE",
    Kind.TEXT: "TEXT",
    Kind.BACKOFF: "BACKOFF",
}
_PARSERS: Final[Mapping[Kind, Callable[[str], Any]]] = {
    Kind.DURATION: duration,
    Kind.COUNT: count,
    Kind.SIZE: size,
}
_CLEARED: Final = "none"


def takes_options(
    rows: Iterable[Option],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option per row, behind its first argument, all in its keyword `options`.

    What was not given is not in it; durations are seconds, and `none` is None.
    """
    by_name = {option.name: option for option in rows}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            one
            for one in inspect.signature(command, eval_str=True).parameters.values()
            if one.name != "options"
        ]
        first, *others = own

        def run(**given: Any) -> None:
            typed = {name: given.pop(name) for name in by_name}
            command(**given, options=_keywords(by_name, typed))

        signature = inspect.Signature([first, *map(_parameter, by_name.values()), *others])
        run.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _parameter(option: Option) -> inspect.Parameter:
    """Describe an option as a parameter of typer; its value is None where it was not given."""
    help_text = f"{option.help} (default {option.default_text})."
    if option.kind is Kind.FLAG:
        flag = option.name.replace("_", "-")
        words = typer.Option(f"--{flag}/--{option.off or f'no-{flag}'}", help=help_text)
        annotation: Any = Annotated[bool | None, words]
    else:
        words_of_kind = [_METAVARS[option.kind]] if option.kind in _METAVARS else []
        metavar = "|".join([*option.choices, *words_of_kind])
        words = typer.Option(help=help_text, metavar=metavar, show_default=False)
        annotation = Annotated[str | None, words]
    return inspect.Parameter(
        option.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation
    )


def _keywords(rows: Mapping[str, Option], typed: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of the client from what was typed. Raises `UsageProblem`."""
    return {name: _value(rows[name], value) for name, value in typed.items() if value is not None}


def _value(option: Option, value: Any) -> Any:
    if isinstance(value, str) and option.kind is not Kind.TEXT:
        if value.lower() == _CLEARED and _CLEARED not in option.choices:
            return None
        if option.kind in _PARSERS and value.lower() not in option.choices:
            return _PARSERS[option.kind](value)
    return value


def as_typed(option: Option, value: Any) -> str:
    """An option with a value from the wire, as it is typed: `--lock 21s`, `--no-priorities`."""
    flag = option.name.replace("_", "-")
    if option.kind is Kind.FLAG and isinstance(value, bool):
        return f"--{flag}" if value else f"--{option.off or f'no-{flag}'}"
    if value is None:
        return f"--{flag} {_CLEARED}"
    return f"--{flag} {shlex.quote(option.shown(value) if isinstance(value, int) else value)}"
