"""The journal on a real folder: locks, permissions, full disks, and the calls on descriptors."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from node.journal import limits
from node.journal.errors import JournalForeign, JournalLocked, JournalUnusable
from node.journal.io import storage
from node.journal.io.storage import LOCK_NAME, OsStorage
from node.journal.limits import JournalLimits
from node.journal.segments import MARK_NAME, parse_segment_name
from tests.support.journals import SMALL, command, fill, open_journal, state_of
from tests.support.privileges import ordinary_user
from tests.support.snapshots import at_once, clean_up, kept_entry, live_entries, state_at, take

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import ModuleType


def test_a_journal_lives_in_its_folder_and_in_those_it_has_to_make(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "down"
    journal = open_journal(OsStorage(folder))
    for term in range(1, 20):
        fill(journal, 3, size=200, term=term)
        journal.log.sync()
    journal.log.set_term(20, "beta")
    journal.log.truncate(30)
    expected = state_of(journal)
    journal.close()
    journal = open_journal(OsStorage(folder))
    assert state_of(journal) == expected
    journal.close()
    names = sorted(os.listdir(folder))
    assert [name for name in names if not parse_segment_name(name)] == [LOCK_NAME, MARK_NAME]


def test_no_other_user_reads_a_file_of_the_journal(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal = open_journal(OsStorage(tmp_path / "data"))
        fill(journal, 3, size=200, term=1)
        journal.log.sync()
        take(journal, [])
        journal.close()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir()}
    assert len(modes) == 5  # lock, mark, two segments, snapshot
    assert set(modes.values()) == {0o600}


def test_a_second_journal_on_the_folder_is_refused_naming_folder_and_process(
    tmp_path: Path,
) -> None:
    journal = open_journal(OsStorage(tmp_path))
    with pytest.raises(JournalLocked) as seen:
        open_journal(OsStorage(tmp_path))
    assert str(tmp_path) in str(seen.value)
    assert f"process {os.getpid()}" in str(seen.value)
    fill(journal, 3)
    journal.close()
    again = open_journal(OsStorage(tmp_path))
    assert again.log.last_index == 3
    again.close()


@pytest.mark.process
def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from node.journal.io.storage import OsStorage\n"
        "from tests.support.journals import fill, open_journal\n"
        "journal = open_journal(OsStorage(sys.argv[1]))\n"
        "fill(journal, 7)\n"
        "journal.log.sync()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    assert killed.returncode == -9
    journal = open_journal(OsStorage(tmp_path))
    assert journal.log.last_index == 7
    journal.close()


@pytest.mark.process
def test_b15_a_file_size_limit_stops_the_process_cleanly_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """Effects of a full disk, without needing one: writes fail with EFBIG half-way."""
    script = (
        "import resource, sys\n"
        "from node.journal.errors import JournalFailed\n"
        "from node.journal.io.storage import OsStorage\n"
        "from tests.support.journals import ONE_SEGMENT, fill, open_journal\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "journal = open_journal(OsStorage(sys.argv[1]), limits=ONE_SEGMENT)\n"
        "try:\n"
        "    while True:\n"
        "        fill(journal, 3, size=1000)\n"
        "        journal.log.sync()\n"
        "        print(journal.log.last_index, flush=True)\n"
        "except JournalFailed as problem:\n"
        "    print(problem)\n"
        "    journal.close()\n"
    )
    full = subprocess.run(
        [sys.executable, "-c", script, tmp_path], check=True, capture_output=True, text=True
    )
    *acknowledged, message = full.stdout.splitlines()
    assert "no room left on the disk" in message
    last = int(acknowledged[-1])
    assert last > 80
    journal = open_journal(OsStorage(tmp_path))
    assert last <= journal.log.last_index <= last + 3
    for index in range(1, last + 1):
        assert journal.log.read(index) == command(index, 1000)
    fill(journal, 10, size=1000)
    journal.close()


def test_a_path_that_is_no_folder_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(JournalUnusable, match="cannot use the journal folder"):
            open_journal(OsStorage(path))


def test_a_folder_without_permission_is_refused_with_a_clear_message() -> None:
    with ordinary_user() as folder:
        folder.chmod(0o500)
        with pytest.raises(JournalUnusable, match="Permission denied"):
            open_journal(OsStorage(folder))


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(JournalForeign, match=r"notes\.txt"):
        open_journal(OsStorage(tmp_path))
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == [LOCK_NAME, "notes.txt"]


def patch_here(
    monkeypatch: pytest.MonkeyPatch, owner: ModuleType, name: str, instead: Callable[..., Any]
) -> None:
    """Replace a function for this thread: a shared cluster writes on another one."""
    real, here = getattr(owner, name), threading.get_ident()

    def call(*arguments: Any) -> Any:
        return (instead if threading.get_ident() == here else real)(*arguments)

    monkeypatch.setattr(owner, name, call)


def test_b18_every_group_is_one_pwritev_and_one_fdatasync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real_write, real_sync = os.pwritev, storage._datasync

    def write(descriptor: int, parts: Sequence[bytes], offset: int) -> int:
        calls.append("pwritev")
        return real_write(descriptor, parts, offset)

    def sync(descriptor: int) -> None:
        calls.append("sync")
        real_sync(descriptor)

    journal = open_journal(OsStorage(tmp_path), limits=JournalLimits())
    patch_here(monkeypatch, os, "pwritev", write)
    patch_here(monkeypatch, storage, "_datasync", sync)
    for _ in range(200):
        fill(journal, 5)
        journal.log.sync()
    assert calls == ["pwritev", "sync"] * 200
    journal.close()


def test_short_writes_and_short_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_writev, real_write, real_read = os.pwritev, os.pwrite, os.pread
    patch_here(monkeypatch, os, "pwritev", lambda d, parts, o: real_writev(d, [parts[0][:7]], o))
    patch_here(monkeypatch, os, "pwrite", lambda d, part, o: real_write(d, part[:11], o))
    patch_here(monkeypatch, os, "pread", lambda d, size, o: real_read(d, min(size, 13), o))
    journal = open_journal(OsStorage(tmp_path), limits=SMALL)
    fill(journal, 9, size=90)
    journal.log.sync()
    expected = state_of(journal)
    journal.close()
    monkeypatch.undo()
    journal = open_journal(OsStorage(tmp_path))
    assert state_of(journal) == expected
    assert [entry[0] for entry in expected[0]] == [command(index, 90) for index in range(1, 10)]
    journal.close()


def test_a_disk_that_takes_nothing_and_says_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsStorage(tmp_path)
    disk.lock()
    file = disk.create("x")
    patch_here(monkeypatch, os, "pwritev", lambda *_: 0)
    patch_here(monkeypatch, os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="took no more bytes") as seen:
        file.write(0, [b"abc"])
    assert seen.value.errno == errno.EIO
    file.close()
    disk.unlock()


def test_a_group_of_more_parts_than_one_call_takes_is_written_whole(tmp_path: Path) -> None:
    journal = open_journal(OsStorage(tmp_path), limits=JournalLimits(cache_bytes=0))
    fill(journal, 3 * limits.WRITE_PARTS_MAX)
    journal.log.sync()
    for index in range(1, journal.log.last_index + 1, 97):
        assert journal.log.read(index) == command(index)
    journal.close()


def test_free_space_is_the_file_systems(tmp_path: Path) -> None:
    journal = open_journal(OsStorage(tmp_path))
    figures = os.statvfs(tmp_path)
    assert 0 < journal.stats().free_bytes <= figures.f_blocks * figures.f_frsize
    journal.close()


def test_the_storage_names_its_folder(tmp_path: Path) -> None:
    disk = OsStorage(tmp_path)
    assert repr(disk) == f"<OsStorage {tmp_path}>"
    disk.lock()
    assert repr(disk) == f"<OsStorage {tmp_path} locked>"
    disk.unlock()
    disk.unlock()


def test_snapshots_kept_files_and_an_install_on_a_real_folder(tmp_path: Path) -> None:
    small = JournalLimits(segment_bytes=4096, cache_bytes=0, open_segments=2)
    live = [2, 3, 40, 41]
    storage = OsStorage(tmp_path / "source")
    journal = open_journal(storage, limits=small)
    for _ in range(30):
        fill(journal, 5, size=300)
        journal.log.sync()
    for index in (100, 140):
        meta = take(journal, live, index=index, size=600_000)
        clean_up(journal)
    endings = Counter(name.rpartition(".")[2] for name in storage.listdir())
    assert (endings["snapshot"], endings["kept"], endings["tmp"]) == (2, 1, 0)
    target = open_journal(OsStorage(tmp_path / "target"), limits=small)
    target.log.set_term(1, None)
    writer = target.begin_install(meta)
    writer.add_state(journal.read_state(meta, 0, meta.state_bytes))
    for index in live_entries(journal, meta):
        writer.add_entry(*kept_entry(journal, index))
    assert at_once(writer.finishing()) is False
    for opened in (journal, target):
        opened.close()
    for name, last in (("source", 150), ("target", 140)):
        again = open_journal(OsStorage(tmp_path / name), limits=small)
        assert (again.log.last_index, again.snapshot) == (last, meta)
        assert again.read_state(meta, 0, 1 << 20) == state_at(140, 600_000)
        assert [again.log.read(index) for index in live] == [command(i, 300) for i in live]
        again.close()
