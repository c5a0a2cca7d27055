"""The page that shows the walk, and what a test reads back from it.

Owns the text of `docs/walk.md`. A line is a step: package, function, and the first sentence of its
docstring, as deep as the packages on the way to it. Must not know how a step was found.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from tests.support.pytest_ids import ROOT
from tests.walk.tracer import Step

PAGE = ROOT / "docs" / "walk.md"
COLUMNS = 118

_HEAD = """\
# The walk

Five journeys through the house, rendered from one real run in virtual time: a client and three
nodes, with every call from one package into another noted. `make walk` writes this page anew, and
`tests/walk/test_walk.py` checks that it still shows the packages and functions that such a run
goes through. [architecture.md](architecture.md) draws the packages.

A line is the first call of a function by the client, by the leader or by a follower (two of them,
shown as one): its package, its name, and what its docstring says of it. Indentation is the way
down, from the caller's package into the callee's; *in* names the function that a line continues
where the page had left it. Helpers inside a package, functions that only answer a question, and
what an idle cluster does as well are left out.
"""

_INTRODUCTIONS = {
    "publish": "From `await client.publish(...)` to the confirm, and to the message in the hands"
    " of a consumer.",
    "renewal": "`await message.renew()`: answered from the leader's memory under its lease."
    " An explicit renewal also proves that the program is alive, which is a command in the log only"
    " where its consumer is suspected.",
    "ack": "`await message.ack(receipt=True)`: a settlement, its entry in the log, its receipt.",
    "time-out": "A lock ends: the lock clock finds it, one entry returns the message and suspects"
    " the consumer, and the client is notified. Once the program asks for more, the message is"
    " handed out again.",
    "change of leader": "The leader is killed while the client acks: an election, `lead(term)`, the"
    " session resumed with its locks at the next leader, and the settlement sent again.",
}

_LINE = re.compile(r"^ +([\w.]+) {2}([\w.<>]+)(?: {2}.*)?$")


def render(journeys: Mapping[str, Sequence[Step]]) -> str:
    """The whole page."""
    parts = [_HEAD]
    for name, steps in journeys.items():
        introduction = textwrap.fill(_INTRODUCTIONS[name], COLUMNS)
        lines = "\n".join(_lines(steps))
        parts.append(f"## {name.capitalize()}\n\n{introduction}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


def _lines(steps: Sequence[Step]) -> Iterator[str]:
    actor, depth = "", -1
    for step in steps:
        if step.actor != actor:
            actor, depth = step.actor, -1
            yield actor
        if step.depth > depth + 1:
            yield f"{'  ' * step.depth}(in {step.above})"
        depth = step.depth
        line = f"{'  ' * (depth + 1)}{step.room}  {step.function}  {step.sentence}"
        yield line if len(line) <= COLUMNS else line[: COLUMNS - 3].rstrip(" ,:;") + "..."


def shown(page: str) -> dict[str, set[tuple[str, str, str]]]:
    """(actor, package, function) of each line, by journey."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("\n")
        steps = found.setdefault(name.lower(), set())
        actor = ""
        for line in text.partition("```text\n")[2].partition("\n```")[0].splitlines():
            step = _LINE.match(line)
            if step is not None:
                steps.add((actor, step[1], step[2]))
            elif not line.startswith(" "):
                actor = line
    return found
