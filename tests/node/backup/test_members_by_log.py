"""The members of a cluster that stands still, and the file of the one that goes on with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from node.backup.errors import RebuildRefused
from node.backup.members import anew, by_log
from node.config import Address, ClusterConfig, cluster_config
from node.raft import Configuration, Member, encode


def members(*numbers: int) -> tuple[Member, ...]:
    return tuple(
        Member(f"n{one}", ("127.0.0.9", one), f"127.0.0.9:1{one}", f"127.0.0.9:2{one}", b"j" * one)
        for one in numbers
    )


def log(snapshot: Configuration | None = None, *later: Configuration) -> Any:
    """A journal whose snapshot was taken in one configuration, with others in its log."""
    noted = {index: encode(one) for index, one in enumerate(later, 8)}
    taken = b"" if snapshot is None else encode(snapshot)
    return SimpleNamespace(snapshot=SimpleNamespace(members=taken), noted=noted)


def named(config: ClusterConfig) -> list[str]:
    return [f"{node.name} {node.peer}" for node in config.nodes]


@pytest.fixture
def config() -> ClusterConfig:
    return cluster_config(3, 7100, Path("/nowhere"))


def test_where_members_never_changed_they_are_those_of_the_file(config: ClusterConfig) -> None:
    assert by_log(config, log()) is config


def test_the_newest_configuration_holds_and_its_learners_are_no_members(
    config: ClusterConfig,
) -> None:
    before = Configuration(1, members(1, 2, 3))
    newest = Configuration(2, members(2, 4), members(5))
    expected = ["n2 127.0.0.9:2", "n4 127.0.0.9:4"]
    assert named(by_log(config, log(before, newest))) == expected
    assert named(by_log(config, log(newest))) == expected
    assert named(by_log(config, log(None, before, newest))) == expected


def test_members_that_cannot_be_read_are_no_members_of_the_file(config: ClusterConfig) -> None:
    damaged = SimpleNamespace(snapshot=None, noted={8: b"\x11damaged"})
    with pytest.raises(RebuildRefused, match="the members of the log cannot be read"):
        by_log(config, damaged)  # type: ignore[arg-type]


def test_the_cluster_that_goes_on_is_another_one_each_time(config: ClusterConfig) -> None:
    first, path = config.node("n1"), Path("/nowhere/again.toml")
    once = anew(config, first, {}, path)
    twice = anew(once, first, {}, path)
    assert (once.name, twice.name) == (f"{config.name}-rebuilt", f"{config.name}-rebuilt-rebuilt")
    assert len({config.cluster_id, once.cluster_id, twice.cluster_id}) == 3
    long = anew(replace(config, name="x" * 64), first, {}, path)
    assert len(anew(long, first, {}, path).name) <= 64


def test_who_moved_is_where_it_is_now(config: ClusterConfig) -> None:
    now = replace(config.node("n2"), peer=Address("127.0.0.8", 5))
    found = anew(config, config.node("n1"), {"n2": now}, Path("/nowhere/again.toml"))
    assert found.node("n2") == now
    assert found.node("n3") == config.node("n3")
