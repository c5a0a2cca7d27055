"""The decision to raise the version: who is in the way is named, and what is remembered counts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from fifo.machine import Machine, commands
from fifo.machine.commands import to_list
from fifo.words import versions
from fifo.words.versions import CAN, NEWEST
from node.broker import entry
from node.broker.batcher import Batcher
from node.broker.upgrade import NOTES, SILENT, Upgrade, noted, remembered
from node.journal import notebook
from node.journal.io.storage import OsStorage
from node.peers.versions import PeerVersions, Said
from node.testing.disk import SimStorage

NEW = Said("0.2.0", CAN)


class Scene:
    """Node n1 of three, and what it heard of the others."""

    def __init__(self) -> None:
        self.protocols: list[int] = []
        self.peers = PeerVersions()
        self.peers.begin(NEW, SILENT, {}, lambda: None)
        self.uncounted: list[str] = []
        self.upgrade = Upgrade(
            "n1",
            lambda: ("n1", "n2", "n3"),
            self.peers,
            use_protocol=self.protocols.append,
            uncounted=lambda: self.uncounted,
        )

    def heard(self, name: str, said: Said, *, up: bool = True) -> None:
        self.peers.known[name] = said
        if up:
            self.peers.heard.add(name)

    def raised(self) -> None:
        machine = Machine()
        machine.state.version = NEWEST
        self.upgrade.follow(machine)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_with_all_members_up_and_able_nothing_is_in_the_way(scene: Scene) -> None:
    scene.heard("n2", NEW)
    scene.heard("n3", NEW)
    found = scene.upgrade.judged()
    assert (found.target.number, found.obstacles) == (NEWEST, ())


def test_an_old_member_is_named(scene: Scene) -> None:
    scene.heard("n2", NEW)
    scene.heard("n3", SILENT)
    found = scene.upgrade.judged()
    assert found.target.number == versions.FIRST
    (obstacle,) = found.obstacles
    assert obstacle == (
        "n3 runs 0.1.0, which does not know version 2: install 0.2.0 or a later release on it"
    )


def test_an_older_member_is_known_only_once_it_was_heard(scene: Scene) -> None:
    assert not scene.upgrade.knows_older
    scene.heard("n2", NEW)
    assert not scene.upgrade.knows_older
    scene.heard("n3", SILENT, up=False)
    assert scene.upgrade.knows_older


def test_a_member_that_is_down_is_named_with_what_it_ran_last(scene: Scene) -> None:
    scene.heard("n2", NEW)
    scene.heard("n3", NEW, up=False)
    assert scene.upgrade.judged().obstacles == ("n3 is down (it last ran 0.2.0): start it",)


def test_what_a_member_said_counts_while_it_is_down(scene: Scene) -> None:
    scene.heard("n2", NEW)
    scene.heard("n3", SILENT, up=False)
    (obstacle,) = scene.upgrade.judged().obstacles
    assert obstacle.startswith("n3 runs 0.1.0")


def test_a_member_that_was_never_heard_is_named(scene: Scene) -> None:
    scene.heard("n2", NEW)
    (obstacle,) = scene.upgrade.judged().obstacles
    assert obstacle == "n3 was never heard: start it with a release from 0.2.0 on"


def test_a_member_that_does_not_count_is_named(scene: Scene) -> None:
    scene.heard("n2", NEW)
    scene.heard("n3", NEW)
    scene.uncounted = ["n3"]
    (obstacle,) = scene.upgrade.judged().obstacles
    assert obstacle.startswith("n3 does not count: it recovers, or has a journal that the others")


def test_there_is_nothing_to_raise_behind_the_newest(scene: Scene) -> None:
    scene.raised()
    found = scene.upgrade.judged()
    assert (found.target.number, found.obstacles) == (NEWEST, ())


def test_the_peer_port_follows_the_version_of_the_state_once(scene: Scene) -> None:
    scene.upgrade.follow(Machine())
    assert scene.protocols == []
    scene.raised()
    scene.raised()
    assert scene.protocols == [5]
    assert scene.upgrade.used == NEWEST


def test_the_status_shows_what_finishing_turns_on(scene: Scene) -> None:
    scene.heard("n2", NEW)
    scene.heard("n3", NEW)
    view = scene.upgrade.view()
    assert (view["used"], view["newest"], view["uses"]["peer"]) == (1, NEWEST, 4)
    assert view["can"]["peer"] == [4, 5]
    assert view["members"]["n3"] == {
        "release": "0.2.0",
        "can": {part: list(bounds) for part, bounds in CAN.items()},
        "known": True,
        "connected": True,
    }
    assert view["finish"]["version"] == NEWEST
    assert view["finish"]["turns_on"] == list(versions.VERSIONS[-1].turns_on)
    scene.raised()
    assert scene.upgrade.view()["finish"] == {"version": NEWEST, "turns_on": [], "obstacles": []}


# --- what is remembered ---------------------------------------------------------------------------


def test_what_members_said_survives_a_restart(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path / "data")
    storage.lock()
    assert remembered(notebook.read(storage), ["n2"]) == {}
    for said in ({"n2": SILENT}, {"n2": NEW, "n3": SILENT}):
        notebook.write(storage, {NOTES: noted(said)})
        assert remembered(notebook.read(storage), ["n2", "n3"]) == said
    assert remembered(notebook.read(storage), ["n3", "n4"]) == {"n3": SILENT}
    assert [path.name for path in (tmp_path / "data").glob("members*")] == ["members"]
    storage.unlock()


def test_a_power_loss_at_any_operation_leaves_the_old_notes_or_the_new() -> None:

    found = []
    for seed in range(60):
        rng = random.Random(seed)
        storage = SimStorage()
        storage.lock()
        notebook.write(storage, {"a": 1})
        notebook.write(storage, {"a": 2})
        storage.power_loss(rng)
        fresh = storage.for_process()
        fresh.lock()
        found.append(notebook.read(fresh))
    assert all(one == {"a": 2} for one in found)


@pytest.mark.parametrize(
    "content", [b"", b"no checksum", b'00000000\n{"a": 1}', b"%08x\n[1]", b"\xff" * 40], ids=repr
)
def test_a_damaged_notebook_is_an_empty_one(tmp_path: Path, content: bytes) -> None:

    storage = OsStorage(tmp_path / "data")
    storage.lock()
    if b"%08x" in content:
        content = content % crc32c(b"[1]")
    (tmp_path / "data" / "members").write_bytes(content)
    assert notebook.read(storage) == {}
    notebook.write(storage, {"a": 1})
    assert notebook.read(storage) == {"a": 1}
    storage.unlock()


def test_a_notebook_with_another_checksum_is_an_empty_one() -> None:
    storage = SimStorage()
    storage.lock()
    file = storage.create(notebook.NOTEBOOK_NAME)
    file.write(0, (b'00000000\n{"a": 1}',))
    file.close()
    assert notebook.read(storage) == {}


def test_a_range_of_one_number_is_none() -> None:
    assert remembered({NOTES: {"n2": ["0.2.0", {"peer": [4]}]}}, ["n2"]) == {}


def test_the_entry_that_raises_the_version_needs_it() -> None:
    """So that a program that does not know the version stops with a line, and not in apply."""
    batcher: Batcher[None] = Batcher(lambda: 0.0)
    plain = to_list(commands.SetVersion(NEWEST))
    for version in (0, NEWEST, 0):
        batcher.add(lambda _: plain, None, weight=0, version=version)
    batch = batcher.take()
    assert batch is not None
    payload = b"".join(map(bytes, batch.parts(version=1, stamp_ms=1, wall_ms=1)))
    assert entry.unpack(memoryview(payload)).machine_version == NEWEST


ILL: list[Any] = [
    {},
    {NOTES: 5},
    {NOTES: {"n2": 5}},
    {NOTES: {"n2": ["0.2.0"]}},
    {NOTES: {"n2": [5, {}]}},
    {NOTES: {"n2": ["0.2.0", {"peer": 4}]}},
    {NOTES: {"n2": ["0.2.0", {"peer": [4]}]}},
    {NOTES: {"n2": ["0.2.0", {"peer": [4, True]}]}},
]


@pytest.mark.parametrize("notes", ILL, ids=json.dumps)
def test_ill_formed_notes_are_none(notes: Any) -> None:
    assert remembered(notes, ["n2"]) == {}
