"""Running the command line: in a folder of its own, or at a cluster of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node.cli.state import ClusterFolder
from tests.node.cli.local import Done, Local, free_base_port, running_cluster, typing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module", autouse=True)
def _no_address_set() -> Iterator[None]:
    """Nothing from outside names a cluster or its options."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIFO_URL", "FIFO_DEBUG", "FIFO_CONFIG"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs ``fifo`` with the given arguments in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return typing(capsys)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """Three nodes that serve the tests of a module, and the commands that people type at them."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as here:
        yield here


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Local]:
    """A folder without a cluster yet; whatever a test starts there is not left."""
    local = Local(tmp_path, free_base_port())
    yield local
    if ClusterFolder(tmp_path / ".fifo").load() is not None:
        local.kill_all()


@pytest.fixture
def base_port() -> int:
    """A base with free ports for three nodes."""
    return free_base_port()
