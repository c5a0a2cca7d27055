"""The file of a backup: what is written reads back, and nothing else passes."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from node.backup.errors import BackupDamaged, BackupFailed
from node.backup.file import About, Backup, BackupWriter

ABOUT = About("example", "n2", "0.2.0", 1_000, 1_700_000_000_000, '[cluster]\nname = "example"\n')
CLUSTER = bytes(range(16))
STATE = (b"s" * 300, b"", b"t" * 200)
ENTRIES = ((3, b"three"), (7, b""), (40, b"forty" * 50))


def written(path: Path) -> BackupWriter:
    """A backup with a little of everything, before its end."""
    writer = BackupWriter(path, CLUSTER, 41, ABOUT)
    for data in STATE:
        writer.add_state(data)
    for index, payload in ENTRIES:
        writer.add_entry(index, payload)
    return writer


def test_a_backup_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    made = written(path).publish()
    found = Backup.open(path)
    assert (found.about, found.cluster_id, found.index) == (ABOUT, CLUSTER, 41)
    assert b"".join(found.state()) == b"".join(STATE)
    assert tuple(found.each_entry()) == ENTRIES
    assert [found.entry(index) for index, _ in ENTRIES] == [payload for _, payload in ENTRIES]
    assert (found.size, found.digest) == (path.stat().st_size, made.digest)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a.backup"]
    with pytest.raises(IndexError, match="entry 8 is not in the backup"):
        found.entry(8)


def test_damage_anywhere_is_named_by_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    written(path).publish()
    whole = path.read_bytes()
    for at in range(0, len(whole), 31):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(BackupDamaged) as caught:
            Backup.open(path)
        assert caught.value.offset <= at, "it names the record, or what begins with it"
        assert f"at byte {caught.value.offset}: " in str(caught.value)


def test_a_file_that_is_cut_off_is_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    written(path).publish()
    whole = path.read_bytes()
    for size in range(0, len(whole), 31):
        path.write_bytes(whole[:size])
        with pytest.raises(BackupDamaged, match=r"cut off|does not begin"):
            Backup.open(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(BackupDamaged, match="bytes follow the end record"):
        Backup.open(path)


def test_what_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    written(path).abort()
    assert os.listdir(tmp_path) == []
    path.write_bytes(b"another")
    with pytest.raises(BackupFailed, match="exists already"):
        BackupWriter(path, CLUSTER, 41, ABOUT)
    assert path.read_bytes() == b"another"


def test_a_file_that_came_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    writer = written(path)
    path.write_bytes(b"another")
    with pytest.raises(BackupFailed, match="exists already"):
        writer.publish()
    assert os.listdir(tmp_path) == ["a.backup"]
    assert path.read_bytes() == b"another"


def test_entries_that_do_not_ascend_are_no_backup(tmp_path: Path) -> None:
    for indexes in ((3, 3), (3, 2), (42,)):
        writer = BackupWriter(tmp_path / "a.backup", CLUSTER, 41, ABOUT)
        for index in indexes:
            writer.add_entry(index, b"")
        with pytest.raises(BackupFailed, match=f"entry {indexes[-1]} is out of order"):
            writer.publish()
        assert os.listdir(tmp_path) == []


@pytest.mark.process
def test_a_full_disk_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    """A limit of the file's size is what the kernel has of a full disk without one."""
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from tests.node.backup.test_file import *\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 20}, {1 << 20}))\n"
        "writer = written(Path(sys.argv[1]))\n"
        "try:\n"
        "    for _ in range(40):\n"
        "        writer.add_state(bytes(1 << 16))\n"
        "    writer.publish()\n"
        "except BackupFailed as error:\n"
        "    print(error)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.backup")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "cannot be written: File too large; nothing of it is left" in done.stdout
    assert os.listdir(tmp_path) == []
