"""`docs/machine.md` names everything that the machine shows to its outside."""

from pathlib import Path

import pytest

from fifo.machine import commands, effects
from fifo.machine.state.records import QUEUE_COUNTERS
from fifo.words.settlement import Status

PAGE = (Path(__file__).parents[2] / "docs" / "machine.md").read_text()


@pytest.mark.parametrize(
    "name",
    [
        *(kind.__name__ for kind in commands.Command.__args__),
        *(kind.__name__ for kind in effects.Effect.__args__),
        *QUEUE_COUNTERS,
        *(status.name.lower() for status in Status),
    ],
)
def test_the_page_on_the_machine_names_it(name: str) -> None:
    assert f"`{name}`" in PAGE
