"""The settings of a workload, beside its history and in reports.

Owns the name of their file, and their form as lines of a table. Knows no workload.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SETTINGS: Final = "_workload.json"
"""No reader of a folder of events looks at a name that begins like this."""


def write_settings(folder: Path, workload: Mapping[str, Any]) -> None:
    """Keep the workload beside its history, for the report on it."""
    text = json.dumps(workload, indent=2) + "\n"
    (folder / SETTINGS).write_text(text, encoding="utf-8")


def flat(settings: Mapping[str, Any], prefix: str = "workload") -> Iterator[tuple[str, str]]:
    """Each setting with its path, as `workload.queue.lock`."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}.{name}")
        elif value is not None:
            shown = value if isinstance(value, str) else json.dumps(value)
            yield f"{prefix}.{name}", shown
