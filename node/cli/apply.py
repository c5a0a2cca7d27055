"""``fifo apply`` and ``fifo export``: the queues of a cluster as a file, and a file as its queues.

Owns the plan: what to declare, update and delete so that the cluster has what the file says. The
plan is made and checked as a whole before the first change. Must not know the format of the file:
`definitions` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fifo
from fifo.words.queue_options import QUEUE_OPTIONS
from node.cli import definitions, output
from node.cli.completion import queue_names
from node.cli.confirmation import Yes, confirm
from node.cli.definitions import Definition
from node.cli.errors import CliError, one_line
from node.cli.session import Json, Url, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BY_WIRE = {option.wire_name: option for option in QUEUE_OPTIONS}


@dataclass(frozen=True, slots=True)
class Step:
    """A change of one queue. `changes`: by option, on the wire, what it is and what it will be."""

    action: str
    queue: str
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    messages: int = 0

    @property
    def line(self) -> str:
        """The step for a person."""
        if self.action == "delete":
            return f"- delete {self.queue} ({self.messages} messages)"
        sign = "+" if self.action == "declare" else "~"
        shown = (
            f"{_BY_WIRE[key].name}={_shown(key, new)}"
            if self.action == "declare"
            else f"{_BY_WIRE[key].name}: {_shown(key, old)} -> {_shown(key, new)}"
            for key, (old, new) in self.changes.items()
        )
        return f"{sign} {self.action} {self.queue} {', '.join(shown)}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """The step for a program; durations in milliseconds."""
        changes = {key: {"old": old, "new": new} for key, (old, new) in self.changes.items()}
        shown = {"action": self.action, "queue": self.queue, "changes": changes}
        return {**shown, "messages": self.messages} if self.action == "delete" else shown


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return _BY_WIRE[key].shown(value) if isinstance(value, int) else str(value)


def plan(
    wanted: Sequence[Definition], existing: Mapping[str, Definition], messages: Mapping[str, int],
    *, prune: bool,
) -> list[Step]:  # fmt: skip
    """The steps from what is to what is wanted. Raises CliError where there is no way.

    A dead-letter queue that a wanted queue names is not deleted, nor is one that `wanted` lacks
    while `prune` is false.
    """
    steps, fixed = [], []
    for one in definitions.in_order(wanted):
        there = existing.get(one.name)
        if there is None:
            new = {k: (definitions.DEFAULTS[k], v) for k, v in one.wire.items()}
            changes = {key: pair for key, pair in new.items() if pair[0] != pair[1]}
            steps.append(Step("declare", one.name, changes))
            continue
        pairs = {key: (there.wire[key], value) for key, value in one.wire.items()}
        changes = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
        fixed += [
            f"{one.name}: {_BY_WIRE[key].name} is {_shown(key, old)}, and cannot become"
            f" {_shown(key, new)} while the queue exists"
            for key, (old, new) in changes.items()
            if not _BY_WIRE[key].changeable
        ]
        if changes:
            steps.append(Step("update", one.name, changes))
    if fixed:
        raise CliError(f"{'; '.join(fixed)}; nothing was changed: delete it first, or rename it")
    if prune:
        steps += _deletions(wanted, existing, messages)
    return steps


def _deletions(
    wanted: Sequence[Definition], existing: Mapping[str, Definition], messages: Mapping[str, int]
) -> list[Step]:
    """Queues before the dead-letter queue that they name: one in use cannot be deleted."""
    kept = {one.name for one in wanted} | {one.dead_letter for one in wanted}
    gone = [one for one in existing.values() if one.name not in kept]
    ordered = reversed(definitions.in_order(gone))
    return [Step("delete", one.name, messages=messages[one.name]) for one in ordered]


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Path of the file of queues.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be changed, and change nothing.")
    ] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Delete queues that are not in the file, with their messages."
        ),
    ] = False,
    only: Annotated[
        str,
        typer.Option("--only", metavar="PATTERN", help="With --prune: delete none but these."),
    ] = "*",
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make queues as a file says.

    Options that the file leaves out get their defaults. Applied again, it changes nothing. Deletes
    only with --prune, and asks before.
    """
    wanted = definitions.read(file)
    definitions.in_order(wanted)  # a cycle is found before a cluster is asked

    async def look(client: fifo.Client) -> list[Step]:
        views = await _queues(client)
        existing = {view.name: _definition(view) for view in views}
        chosen = {view.name: view.messages for view in views}
        steps = plan(wanted, existing, chosen, prune=prune)
        return [one for one in steps if one.action != "delete" or fnmatchcase(one.queue, only)]

    steps = run(url, look)
    if not as_json:
        for step in steps:
            output.say(step.line)
    deleted = [step for step in steps if step.action == "delete"]
    if deleted and not dry_run and not yes:
        lost = sum(step.messages for step in deleted)
        confirm(f"{_queues_text(len(deleted))} will be deleted, with {lost} messages", "Go on?")

    async def work(client: fifo.Client) -> None:
        for number, step in enumerate(steps):
            try:
                await _carry_out(client, step)
            except fifo.FifoError as error:
                left = len(steps) - number - 1
                raise CliError(
                    f"{step.action} {step.queue}: {one_line(error)}; {number} changes were made"
                    f" before it, {left} not: mend it and apply the file again"
                ) from error

    if steps and not dry_run:
        run(url, work)
    if as_json:
        output.print_json({"applied": not dry_run, "steps": [step.as_dict() for step in steps]})
    elif not steps:
        output.say("nothing to change")
    else:
        changes = f"{len(steps)} change{'' if len(steps) == 1 else 's'}"
        output.note(f"{changes} {'would be made' if dry_run else 'made'}")


def export(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            autocompletion=queue_names,
            help="Glob pattern of queue names: *, ?, [a-z].",
        ),
    ] = "*",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write to this file instead of the output."),
    ] = None,
    url: Url = None,
) -> None:
    """Write queues as a file for `fifo apply`.

    Sorted by name, without what has its default: two exports of equal queues are equal.
    """

    async def work(client: fifo.Client) -> list[fifo.QueueView]:
        return [view for view in await _queues(client) if fnmatchcase(view.name, pattern)]

    found = sorted(map(_definition, run(url, work)), key=lambda one: one.name)
    text = definitions.write(found)
    if out is None:
        typer.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8")
    output.note(f"{_queues_text(len(found))} written to {out}")


async def _carry_out(client: fifo.Client, step: Step) -> None:
    given = definitions.keywords({key: new for key, (_, new) in step.changes.items()})
    match step.action:
        case "declare":
            await client.declare(fifo.QueueSpec(step.queue, **given))
        case "update":
            await client.update(step.queue, **given)
        case _:
            await client.delete(step.queue)


async def _queues(client: fifo.Client) -> list[fifo.QueueView]:
    """All queues with their options, which a list of very many leaves out."""
    return [view if view.spec else await client.queue(view.name) for view in await client.queues()]


def _definition(view: fifo.QueueView) -> Definition:
    return Definition(view.name, definitions.canonical(view.spec))


def _queues_text(count: int) -> str:
    return f"{count} queue{'' if count == 1 else 's'}"
