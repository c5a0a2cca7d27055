"""Queues as a file: the `[[queue]]` sections that `fifo export` writes and `fifo apply` reads.

Owns the format: a name and options by the names that people type, durations as `30s`, sizes as
numbers of bytes or `64MiB`. What is left out has its default. Must not know what a cluster has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import fifo
from fifo.client.spec import changes_to_wire
from fifo.words import backoff
from fifo.words.durations import to_text
from fifo.words.options import Kind, Option
from fifo.words.queue_options import QUEUE_OPTIONS
from node.cli.errors import CliError, one_line
from node.cli.text import duration, size
from node.table import ConfigError, Table, quoted, read_toml

HEADER: Final = """\
# Queues of a fifo cluster, written by `fifo export`; `fifo apply FILE` gives them to a cluster.
# Options that are left out have their defaults: `fifo queue declare --help` lists them.
"""

QUEUES_MAX: Final = 10_000
"""No cluster has more."""

Wire = dict[str, Any]
DEFAULTS: Final[Wire] = {option.wire_name: option.default for option in QUEUE_OPTIONS}


@dataclass(frozen=True, slots=True)
class Definition:
    """A queue of a file. `wire`: all its options under their names on the wire."""

    name: str
    wire: Wire

    @property
    def dead_letter(self) -> str | None:
        """The queue that its dead letters go to."""
        found: str | None = self.wire["dead_letter"]
        return found


def read(path: Path) -> list[Definition]:
    """Read a file. Raises CliError, which names every section that is wrong."""
    problems: list[str] = []
    found: list[Definition] = []
    try:
        top = Table(read_toml(path, str(path)), str(path), "")
        tables = top.tables("queue", required=False)
        top.finish()
    except ConfigError as error:
        raise CliError(one_line(error)) from None
    if len(tables) > QUEUES_MAX:
        raise CliError(f"{path}: {len(tables)} [[queue]] sections; {QUEUES_MAX} at most")
    for table in tables:
        try:
            found.append(_definition(table))
        except (ConfigError, fifo.InvalidArgument, CliError) as error:
            problems.append(one_line(error))
    names = [one.name for one in found]
    problems += [
        f"{path}: queue {name!r} has {names.count(name)} [[queue]] sections; keep one"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if problems:
        raise CliError("; ".join(problems))
    return found


def _definition(table: Table) -> Definition:
    name = table.text("name")
    given: dict[str, Any] = {}
    for option in QUEUE_OPTIONS:
        value = table.pop(option.name)
        if value is not None:
            given[option.name] = _value(table, option, value)
    table.finish()
    try:
        fifo.QueueSpec(name)
        wire = changes_to_wire(given)
    except fifo.InvalidArgument as error:
        key = next((key for key in given if str(error).startswith(key)), "name")
        raise table.error(key, one_line(error)) from None
    return Definition(name, canonical({**DEFAULTS, **wire}))


def _value(table: Table, option: Option, value: object) -> Any:
    """A value of the file as a program would pass it. Raises ConfigError."""
    parse = {Kind.DURATION: duration, Kind.SIZE: size}.get(option.kind)
    if parse is None:
        return value
    if option.kind is Kind.SIZE and type(value) is int:
        return value
    if not isinstance(value, str):
        example = "30s" if option.kind is Kind.DURATION else "64MiB"
        raise table.error(
            option.name, f'{value!r} must be written with its unit, as in "{example}"'
        )
    try:
        return parse(value)
    except CliError as error:
        raise table.error(option.name, one_line(error)) from None


def canonical(wire: Mapping[str, Any]) -> Wire:
    """Options as a cluster shows them: a backoff has one text form."""
    found = {key: wire.get(key, default) for key, default in DEFAULTS.items()}
    for key in ("nack_backoff", "timeout_backoff"):
        if found[key] is not None:
            found[key] = str(backoff.parse(found[key]))
    return found


def write(definitions: Iterable[Definition]) -> str:
    """The text of a file that `read` reads back."""
    lines = [HEADER]
    for one in definitions:
        lines += ["[[queue]]", f"name = {quoted(one.name)}"]
        lines += [
            f"{option.name} = {_text(option, one.wire[option.wire_name])}"
            for option in QUEUE_OPTIONS
            if one.wire[option.wire_name] != option.default
        ]
        lines.append("")
    return "\n".join(lines)


def _text(option: Option, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if option.kind is Kind.DURATION:
        return quoted(to_text(value))
    return str(value) if isinstance(value, int) else quoted(value)


def in_order(definitions: Iterable[Definition]) -> list[Definition]:
    """Each queue behind its dead-letter queue, which would else be made without its options.

    Raises CliError where dead-letter queues form a cycle.
    """
    by_name = {one.name: one for one in definitions}
    done: dict[str, Definition] = {}
    for one in by_name.values():
        chain = [one]
        while (target := by_name.get(chain[-1].dead_letter or "")) is not None:
            if target.name in done:
                break
            if target in chain:
                names = " -> ".join(item.name for item in [*chain, target])
                raise CliError(f"dead-letter queues form a cycle: {names}; leave one out")
            chain.append(target)
        for item in reversed(chain):
            done.setdefault(item.name, item)
    return list(done.values())


def keywords(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the wire as keywords of the client: durations in seconds."""
    by_wire = {option.wire_name: option for option in QUEUE_OPTIONS}
    convert = partial(_keyword, by_wire)
    return {by_wire[key].name: convert(key, value) for key, value in wire.items()}


def _keyword(by_wire: Mapping[str, Option], key: str, value: Any) -> Any:
    if by_wire[key].kind is Kind.DURATION and value is not None:
        return value / 1000
    return value
