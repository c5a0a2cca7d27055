"""Journals made from a backup: the same on every node, and harmless where one is not finished."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from fifo.machine import Machine
from node.backup.errors import BackupDamaged, RestoreRefused
from node.backup.file import Backup, BackupWriter
from node.backup.restoring import Restore, check
from node.broker import entry
from node.config import cluster_config, cluster_id_of
from node.journal.errors import JournalWhole
from node.journal.io.storage import OsStorage
from node.journal.journal import Journal
from node.testing.disk import PowerCut, SimStorage
from tests.node.backup.test_file import ABOUT
from tests.node.journal.test_snapshot_power import stop_at
from tests.support.machine import Bench
from tests.support.snapshots import live_entries

STAMP = "20261123T203000Z"


def payload_of(bench: Bench, index: int) -> bytes:
    """An entry of the log with this body area, as a leader packs it."""
    area = bench.areas[index]
    return b"".join(bytes(one) for one in entry.pack([], [area], version=1, stamp_ms=0, wall_ms=0))


def backed_up(folder: Path, *, without: int | None = None) -> Backup:
    """A backup of a machine with messages in five entries, two of them settled."""
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    for number in range(5):
        bench.publish(session, "q", f"body {number}")
    consumer = bench.subscribe(session, "q", prefetch=3).consumer
    bench.ack(consumer, (1, 2))
    writer = BackupWriter(folder / "a.backup", cluster_id_of("example"), bench.index, ABOUT)
    writer.add_state(bench.machine.snapshot())
    for index in sorted(bench.areas):
        if index != without:
            writer.add_entry(index, payload_of(bench, index))
    return writer.publish()


@pytest.mark.slow
def test_every_node_begins_with_the_same_snapshot_and_its_entries(tmp_path: Path) -> None:
    made = Restore(backed_up(tmp_path))
    config = replace(cluster_config(3, 7100, tmp_path), name="new", cluster_id=cluster_id_of("new"))
    states = set()
    for node in config.nodes:
        storage = SimStorage()
        made.make(config, node, storage, STAMP)
        journal = Journal.open(storage, cluster_id=config.cluster_id, node=node.name)
        assert not journal.recovering
        meta = journal.snapshot
        assert meta == made.meta
        assert journal.log.term == meta.term
        assert journal.log.last_index == meta.index
        state = journal.read_state(meta, 0, meta.state_bytes)
        states.add(state)
        machine = Machine.restore(state)
        overview = machine.queue_overview("q")
        assert overview is not None
        assert (overview["messages"], overview["locked"]) == (3, 0)
        live = list(live_entries(journal, meta))
        assert len(live) == 3, "of the settled ones nothing is needed"
        for index in live:
            command = journal.log.read(index)
            area = entry.area_of(memoryview(command)[1:])
            assert b"body" in bytes(area)
        journal.close()
    assert len(states) == 1


@pytest.mark.slow
def test_a_restore_that_stops_anywhere_leaves_a_member_that_recovers(tmp_path: Path) -> None:
    """Whatever a kill leaves is nothing, a member that neither votes nor counts, or all of it."""
    made = Restore(backed_up(tmp_path))
    config = cluster_config(3, 7100, tmp_path)
    node = config.nodes[0]
    outcomes = []
    for number in range(0, 1_000, 5):
        storage = SimStorage()
        stop_at(storage, number, PowerCut)
        try:
            made.make(config, node, storage, STAMP)
        except PowerCut:
            storage.power_loss(random.Random(number))
        else:
            break
        if not storage.listdir():
            outcomes.append("nothing")
            continue
        journal = Journal.open(storage, cluster_id=config.cluster_id, node=node.name)
        whole = journal.snapshot == made.meta
        assert whole or journal.recovering, f"an empty member after operation {number}"
        outcomes.append("whole" if not journal.recovering else "recovers")
        journal.close()
    assert outcomes.count("recovers") > 2


def test_the_name_of_the_lost_cluster_and_what_is_there_are_refused(tmp_path: Path) -> None:
    found = backed_up(tmp_path)
    config = replace(
        cluster_config(3, 7100, tmp_path), name="example", cluster_id=cluster_id_of("example")
    )
    with pytest.raises(RestoreRefused, match="give it another name"):
        check(found, config, config.nodes, OsStorage)
    other = replace(config, name="new", cluster_id=cluster_id_of("new"))
    check(found, other, other.nodes, OsStorage)
    other.nodes[2].data_dir.mkdir(parents=True)
    check(found, other, other.nodes, OsStorage)
    (other.nodes[2].data_dir / "anything").touch()
    with pytest.raises(RestoreRefused, match=r"of n3 is not empty \(anything\)"):
        check(found, other, other.nodes, OsStorage)


def test_a_folder_with_a_whole_journal_is_not_made_anew(tmp_path: Path) -> None:
    made = Restore(backed_up(tmp_path))
    config = cluster_config(3, 7100, tmp_path)
    storage = SimStorage()
    made.make(config, config.nodes[0], storage, STAMP)
    with pytest.raises(JournalWhole):
        made.make(config, config.nodes[0], storage, STAMP)


def test_a_backup_that_lacks_an_entry_is_found_before_any_folder_is_made(tmp_path: Path) -> None:
    found = backed_up(tmp_path, without=5)
    with pytest.raises(BackupDamaged, match="lacks entry 5"):
        Restore(found)
