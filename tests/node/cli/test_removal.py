"""`fifo cluster clean`: what it deletes, and what it leaves alone.

The locks of data folders are real: a node holds them however it was started.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from node.cli.removal import remove_cluster
from node.cli.state import ClusterFolder, state_of
from node.config import cluster_config
from node.journal.io.storage import OsStorage
from tests.node.cli.local import Done

SEGMENT = "0000000001-00000000000000000001.segment"


def stopped_cluster(path: Path) -> ClusterFolder:
    """A cluster of two nodes that was started and stopped: its files, and data in each node."""
    folder = ClusterFolder(path)
    path.mkdir(exist_ok=True)
    config = cluster_config(2, 7100, path)
    folder.write_config(config)
    folder.save(state_of(config))
    (path / "cluster.lock").touch()
    for node in config.nodes:
        node.data_dir.mkdir(parents=True)
        for name in (SEGMENT, SEGMENT + ".tmp", "synced", "lock", "0000000001.kept"):
            (node.data_dir / name).touch()
        (node.data_dir / f"{SEGMENT}.lost-20261122T043238Z").touch()
        folder.log_path(node.name).touch()
        folder.start_request(node.name).touch()
    return folder


def test_clean_deletes_a_stopped_cluster_whole(tmp_path: Path, cli: Callable[..., Done]) -> None:
    stopped_cluster(tmp_path / ".fifo")
    done = cli("cluster", "clean", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "deleted .fifo/n1/data\n" in done.out
    assert "deleted .fifo/cluster.json\n" in done.out
    assert not (tmp_path / ".fifo").exists()


def test_clean_asks_before_it_deletes(tmp_path: Path, cli: Callable[..., Done]) -> None:
    """As all commands that lose messages do."""
    stopped_cluster(tmp_path / ".fifo")
    asked = cli("cluster", "clean")
    assert asked.code == 2
    assert asked.line == (
        "fifo: every message of the cluster in .fifo will be deleted; confirm with --yes"
    )
    assert (tmp_path / ".fifo" / "n1" / "data" / SEGMENT).exists()


def test_clean_leaves_files_that_are_not_the_clusters(
    tmp_path: Path, cli: Callable[..., Done]
) -> None:
    stopped_cluster(tmp_path / ".fifo")
    foreign = ["n1/thesis.txt", "n2/data/notes.md", "n7/data/" + SEGMENT, "single/data/lock"]
    for name in foreign:
        path = tmp_path / ".fifo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("long work", encoding="utf-8")
    done = cli("cluster", "clean", "--yes")
    assert done.code == 0
    assert sorted(done.err.splitlines()) == [
        "kept .fifo/n1/thesis.txt: not a file of this cluster",
        "kept .fifo/n2/data/notes.md: not a file of this cluster",
    ]
    left = [p.relative_to(tmp_path / ".fifo") for p in (tmp_path / ".fifo").rglob("*")]
    assert sorted(str(p) for p in left if (tmp_path / ".fifo" / p).is_file()) == sorted(foreign)


def test_clean_deletes_nothing_where_no_cluster_was_started(
    tmp_path: Path, cli: Callable[..., Done]
) -> None:
    """A folder of `fifo serve --config`, or a stranger's: names alone say nothing."""
    for name in ("cluster.toml", f"n1/data/{SEGMENT}", "n1/thesis.txt"):
        path = tmp_path / "prod" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    before = sorted(tmp_path.rglob("*"))
    done = cli("cluster", "clean", "--dir", "prod")
    assert (done.code, done.err) == (0, "")
    assert done.out == "nothing to delete in prod: no cluster was started there\n"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_clean_refuses_while_any_node_holds_its_lock(
    tmp_path: Path, cli: Callable[..., Done]
) -> None:
    """However it was started: cluster.json knows no process of a `fifo serve`."""
    folder = stopped_cluster(tmp_path / ".fifo")
    running = OsStorage(tmp_path / ".fifo" / "n2" / "data")
    running.lock()
    before = sorted(tmp_path.rglob("*"))
    try:
        refusal = cli("cluster", "clean", "--yes")
        assert refusal.code == 1
        assert "n2 is running" in refusal.line
        assert "nothing was deleted; stop it, then run again: fifo cluster clean" in refusal.line
        assert sorted(tmp_path.rglob("*")) == before
    finally:
        running.unlock()
    assert cli("cluster", "clean", "--yes").code == 0
    assert not folder.path.exists()


def test_clean_finds_the_data_from_another_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stopped_cluster(Path("mine"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    remove_cluster(ClusterFolder(Path("../mine")))
    assert not (tmp_path / "mine").exists()


def test_an_interrupted_clean_continues(tmp_path: Path) -> None:
    folder = stopped_cluster(tmp_path / "c")
    (tmp_path / "c" / "n1" / "data" / SEGMENT).unlink()
    folder.config_path.unlink()
    remove_cluster(folder)
    assert not folder.path.exists()


def test_a_node_folder_that_is_a_link_loses_the_link_and_its_own_data(tmp_path: Path) -> None:
    folder = stopped_cluster(tmp_path / "c")
    (tmp_path / "c" / "n1").rename(tmp_path / "disk")
    (tmp_path / "disk" / "photos").mkdir()
    (tmp_path / "c" / "n1").symlink_to(tmp_path / "disk")
    removal = remove_cluster(folder)
    assert removal.kept == [tmp_path / "c" / "n1" / "photos"]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["photos"]
