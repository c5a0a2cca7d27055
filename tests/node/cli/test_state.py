"""The folder of a local cluster: what it holds, what is refused, what is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.cli.errors import CliError
from node.cli.local import plan
from node.cli.processes import ProcessId
from node.cli.state import ClusterFolder, state_of
from node.config import cluster_config, to_toml
from node.table import ConfigError


def test_a_saved_state_is_loaded(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    state = state_of(cluster_config(3, 7100, tmp_path)).with_process("n2", ProcessId(17, "then"))
    folder.save(state)
    assert folder.load() == state
    assert not list(tmp_path.glob("*.new"))


def test_a_node_is_found_by_number_and_by_name(tmp_path: Path) -> None:
    state = state_of(cluster_config(3, 7100, tmp_path))
    assert state.node("2") is state.node("n2")
    with pytest.raises(CliError, match="no node '4' in this cluster; choose one of 1 to 3"):
        state.node("4")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": 1, "supervisor": null, "nodes": 1}'])
def test_a_damaged_state_file_is_one_clear_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content, encoding="utf-8")
    with pytest.raises(CliError, match=r"cluster\.json is damaged"):
        ClusterFolder(tmp_path).load()


def test_a_folder_with_foreign_files_is_refused_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("long work", encoding="utf-8")
    with pytest.raises(CliError, match=r"contains 'thesis\.txt', which is no file of a cluster"):
        ClusterFolder(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("", encoding="utf-8")
    with pytest.raises(CliError, match="is not a folder"):
        ClusterFolder(tmp_path / "f").prepare()
    with pytest.raises(CliError, match="is not a folder"):
        ClusterFolder(tmp_path / "f" / "g").prepare()


def test_the_data_folders_move_with_the_cluster_folder(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    ClusterFolder(before).save(state_of(cluster_config(1, 7100, before)))
    before.rename(after)
    moved = ClusterFolder(after).load()
    assert moved is not None
    assert [node.data_dir for node in moved.nodes] == [str(after / "n1" / "data")]


def test_only_one_command_at_a_time_changes_a_cluster(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    with (
        folder.locked(),
        pytest.raises(CliError, match="another fifo command is changing"),
        ClusterFolder(tmp_path).locked(),
    ):
        pass
    with folder.locked():
        pass


def test_a_second_start_keeps_the_settings_and_the_number_of_nodes(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    first = plan(folder, None, None)
    assert len(first.nodes) == 3
    folder.write_config(first)
    text = folder.config_path.read_text(encoding="utf-8")
    folder.config_path.write_text(text.replace("queues = 10000", "queues = 7"), encoding="utf-8")
    again = plan(folder, None, None)
    assert again.limits.queues == 7
    moved = plan(folder, 3, 9100)
    assert moved.limits.queues == 7
    assert [node.client.port for node in moved.nodes] == [9101, 9111, 9121]
    assert [node.data_dir for node in moved.nodes] == [node.data_dir for node in first.nodes]
    with pytest.raises(CliError, match=r"contains a cluster of 3 nodes, not 5; omit -n"):
        plan(folder, 5, None)


def test_a_second_start_refuses_an_unknown_key(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    text = to_toml(cluster_config(3, 7100, tmp_path))
    folder.config_path.write_text(text.replace("[raft]", "[raft]\nhartbeat_ms = 9"), "utf-8")
    with pytest.raises(ConfigError, match=r"\[raft\] hartbeat_ms: unknown key; did you mean heart"):
        plan(folder, None, None)
