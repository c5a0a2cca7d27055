"""Parts of Spark's tasks in tests: waiting for each other, and a look at what can be imported.

Must not import the server, nor a test: tasks run where `import node` fails
(`tests.support.spark_session`), and import this module there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceWriter
from pyspark.sql.types import StructType


class Silent(DataSource):
    """A sink of its own, which says which options Spark gives it."""

    @classmethod
    def name(cls) -> str:
        """For USING."""
        return "silent"

    def schema(self) -> str:
        """Name one column."""
        return "body binary"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse, and say what came."""
        raise RuntimeError(f"the options: {sorted(self.options)}")


WAIT_S = 120
LOOK_S = 0.05


def wait_for(condition: Callable[[], object]) -> None:
    """Look until it holds; fails after WAIT_S."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / LOOK_S)):
        if condition():
            return
        pause.wait(LOOK_S)
    raise AssertionError(f"not true within {WAIT_S} s")


def places(tmp_path: Path) -> tuple[Path, Path]:
    """The file by which a task says that it waits, and the one that it waits for."""
    return tmp_path / "before", tmp_path / "after"


def pausing(tmp_path: Path) -> Callable[[], None]:
    """To be called by a task: says that it is there, and waits."""
    before, after = map(str, places(tmp_path))

    def wait() -> None:
        Path(before).touch()
        pause = threading.Event()
        while not Path(after).exists():
            pause.wait(0.02)

    return wait


def pausing_rows(tmp_path: Path) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """For mapPartitions: every partition waits behind its row 1500."""
    wait = pausing(tmp_path)

    def work(rows: Iterable[Any]) -> Iterator[Any]:
        for number, row in enumerate(rows):
            if number == 1500:
                wait()
            yield row

    return work


def import_node(_: int) -> str:
    """Import the server's package, and report the error."""
    try:
        import node
    except ModuleNotFoundError as error:
        return str(error)
    return f"imported from {node.__path__}"
