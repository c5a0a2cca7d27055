"""Entries that are read off the event loop: in few reads, checked, found where they are now, and in
memory for every waiter, however small the cache is."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable, Iterable, Sequence

import pytest

from node.journal import limits
from node.journal.errors import JournalFailed
from node.journal.io.jobs import Inline
from node.journal.io.readers import BodyFetcher
from node.journal.limits import JournalLimits
from node.testing.disk import SimStorage
from tests.support.journals import SMALL, command, fill, open_journal
from tests.support.raft_world import World
from tests.support.snapshots import clean_up, flipped, take

NO_CACHE = JournalLimits(cache_bytes=0)


@pytest.fixture(autouse=True)
def _nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read exactly the requested bodies, except where a test is about reading ahead."""
    monkeypatch.setattr(limits, "FETCH_AHEAD_BYTES", 0)


class Disk:
    """An offload whose work is done when a test says so."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.jobs = 0

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.works.append((work, done))
        self.jobs += 1

    def close(self) -> None: ...

    def go_on(self) -> None:
        """Everything that is under way, and what follows it."""
        while self.works:
            work, done = self.works.pop(0)
            work()
            done(None)


class Reader:
    """Takes entries one after the other, as a connection does, and forgets what it was given."""

    def __init__(self, scene: Scene, *groups: Sequence[int]) -> None:
        self.scene = scene
        self.left = list(groups)
        self.taken: list[bytes] = []
        self.gone: list[int] = []
        self.called = 0

    def needs(self) -> Iterable[Sequence[int]]:
        return iter(self.left)

    def entries_cached(self) -> None:
        self.called += 1
        self.go_on()

    def go_on(self) -> None:
        while self.left:
            found = []
            for index in self.left[0]:
                try:
                    found.append(self.scene.journal.read_cached(index))
                except IndexError:
                    self.gone.append(index)
            if None in found:
                self.scene.fetching.ask(self)
                return
            self.taken += [one for one in found if one is not None]
            del self.left[0]


class Scene:
    """A journal whose old entries are on the disk only, and those who want them."""

    def __init__(
        self, journal_limits: JournalLimits = NO_CACHE, offload: Disk | None = None
    ) -> None:
        self.storage = SimStorage()
        self.journal = open_journal(self.storage, limits=journal_limits)
        self.disk = offload or Disk()
        self.failures: list[Exception] = []
        self.fetching = BodyFetcher(self.journal, self.disk, self.failures.append)

    def write(self, count: int, size: int = 100) -> Scene:
        for _ in range(0, count, 5):
            fill(self.journal, 5, size=size)
            self.journal.log.sync()
        return self

    def reader(self, *groups: Sequence[int]) -> Reader:
        reader = Reader(self, *groups)
        reader.go_on()
        return reader


def commands(indexes: Iterable[int], size: int = 100) -> list[bytes]:
    return [command(index, size) for index in indexes]


def test_cached_entries_are_given_at_once_and_the_rest_is_fetched() -> None:
    scene = Scene(JournalLimits(cache_bytes=1_000)).write(20)
    assert scene.journal.read_cached(20) == command(20, 100)
    assert scene.journal.read_cached(1) is None
    with pytest.raises(IndexError):
        scene.journal.read_cached(21)
    reads = scene.storage.reads
    reader = scene.reader([20], [1], [2])
    assert (reader.taken, scene.storage.reads) == (commands([20]), reads), "not on the loop"
    scene.disk.go_on()
    assert reader.taken == commands([20, 1, 2])
    assert scene.storage.reads == reads + 1
    assert scene.journal.stats().cached_bytes <= 1_000


def test_neighbours_are_one_read_and_far_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FETCH_GAP_BYTES", 500)
    monkeypatch.setattr(limits, "RUN_BYTES", 2_000)
    scene = Scene().write(60)
    for wanted, expected in (
        (range(1, 9), 1),
        ((1, 4, 7, 10), 1),
        ((1, 20, 40), 3),
        (range(1, 30), 3),
        ((9, 3, 5, 4), 1),
    ):
        reads = scene.storage.reads
        reader = scene.reader(*([index] for index in wanted))
        scene.disk.go_on()
        assert reader.taken == commands(wanted)
        assert scene.storage.reads - reads == expected, wanted
        assert scene.storage.largest_read_bytes <= 2_000


def test_requests_meanwhile_share_the_next_fetch_and_no_entry_is_read_twice() -> None:
    scene = Scene().write(30)
    first = scene.reader([1])
    reads = scene.storage.reads
    others = [scene.reader([number], [5]) for number in range(2, 6)]
    assert scene.disk.jobs == 1
    scene.disk.go_on()
    assert scene.disk.jobs == 2
    assert scene.storage.reads - reads == 2
    assert first.taken == commands([1])
    assert [one.taken for one in others] == [commands([number, 5]) for number in range(2, 6)]


@pytest.mark.parametrize("inline", [False, True])
def test_a_reader_gets_to_its_end_without_any_cache(
    monkeypatch: pytest.MonkeyPatch, *, inline: bool
) -> None:
    monkeypatch.setattr(limits, "FETCH_BYTES", 8_000)
    monkeypatch.setattr(limits, "FETCH_ASKER_BYTES", 4_000)
    offload: object = Inline() if inline else Disk()
    scene = Scene(SMALL, offload=offload)  # type: ignore[arg-type]  # one or the other
    scene.write(300)
    groups = [(index, 301 - index) for index in range(1, 301)]
    readers = [scene.reader(*groups) for _ in range(5)]
    if not inline:
        scene.disk.go_on()
    expected = commands(index for group in groups for index in group)
    assert all(reader.taken == expected for reader in readers)
    assert scene.storage.open_files <= 3, "the journal's own, and none of a fetch"


def test_the_bytes_of_one_fetch_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FETCH_BYTES", 100_000)
    monkeypatch.setattr(limits, "FETCH_ASKER_BYTES", 30_000)
    monkeypatch.setattr(limits, "FETCH_GAP_BYTES", 100)
    scene = Scene().write(400, size=1_000)
    groups = [[index] for index in range(1, 401)]
    readers = [scene.reader(*groups[40 * start :]) for start in range(10)]
    before = scene.storage.read_bytes
    bound = 100_000 + 30_000
    while scene.disk.works:
        work, done = scene.disk.works.pop(0)
        work()
        read, before = scene.storage.read_bytes - before, scene.storage.read_bytes
        assert read <= bound
        assert scene.journal.stats().cached_bytes <= bound
        done(None)
    assert all(not reader.left for reader in readers)


def test_a_reader_in_order_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FETCH_AHEAD_BYTES", 5 * (100 + limits.ENTRY_COST_BYTES))
    scene = Scene(JournalLimits(cache_bytes=20_000)).write(150)
    reader = scene.reader([1])
    scene.disk.go_on()
    assert reader.taken == commands([1])
    for index in range(2, 41):
        assert scene.journal.read_cached(index) == command(index, 100), "to be waited for"
        scene.fetching.used(index)
        assert len(scene.disk.works) <= 1
        scene.disk.go_on()
    assert scene.disk.jobs <= 1 + 40 / 5
    assert scene.journal.stats().cached_bytes <= 20_000


def test_read_ahead_ends_at_the_first_cached_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FETCH_AHEAD_BYTES", 1_000_000)
    scene = Scene(JournalLimits(cache_bytes=8_000)).write(60)
    kept = next(index for index in range(1, 61) if scene.journal.read_cached(index) is not None)
    before = scene.storage.read_bytes
    scene.reader([kept - 3])
    scene.disk.go_on()
    assert scene.storage.read_bytes - before < 4 * 200
    scene.fetching.used(kept - 2)
    scene.disk.go_on()
    assert scene.disk.jobs == 2, "and no further"
    scene.fetching.used(kept)
    assert scene.disk.jobs == 2


def test_a_dropped_waiter_is_not_called() -> None:
    scene = Scene().write(10)
    served, waits, other = scene.reader([1]), scene.reader([2]), scene.reader([3])
    scene.fetching.drop(served)
    scene.fetching.drop(waits)
    reads = scene.storage.read_bytes
    scene.disk.go_on()
    assert (served.called, waits.called, other.taken) == (0, 0, commands([3]))
    assert scene.storage.read_bytes - reads < 300, "entry 2 was not read"


def compacted() -> Scene:
    """Entry 20 lies in a segment that is nearly empty, and is about to be moved."""
    scene = Scene(SMALL)
    scene.write(60, size=60)
    for index in (40, 50):
        take(scene.journal, [2, 20], index=index)
    return scene


def test_an_entry_that_was_moved_meanwhile_is_found_where_it_is_now() -> None:
    scene = compacted()
    reader = scene.reader([20])
    before = scene.storage.listdir()
    clean_up(scene.journal)
    assert scene.storage.listdir() != before
    scene.disk.go_on()
    assert (reader.taken, reader.called) == (commands([20], 60), 2)
    assert not scene.failures


def test_an_entry_compacted_away_meanwhile_is_gone() -> None:
    scene = compacted()
    reader = scene.reader([3], [20])
    clean_up(scene.journal)
    scene.disk.go_on()
    assert (reader.taken, reader.gone) == (commands([20], 60), [3])


def test_a_file_that_is_missing_though_it_is_needed_ends_the_journal() -> None:
    scene = Scene(SMALL).write(60)
    reader = scene.reader([2])
    scene.storage.remove(scene.storage.listdir()[0])
    scene.disk.go_on()
    assert reader.called == 0
    assert isinstance(scene.failures[0], JournalFailed)
    with pytest.raises(JournalFailed, match="the disk failed"):
        scene.journal.log.sync()


def test_a_read_that_fails_ends_the_journal() -> None:
    scene = Scene().write(10)
    reader = scene.reader([2])
    scene.storage.read_hook = lambda name: _fail(errno.EIO)
    scene.disk.go_on()
    assert reader.called == 0
    assert isinstance(scene.failures[0], JournalFailed)
    with pytest.raises(JournalFailed, match="the disk failed"):
        scene.journal.log.sync()


def test_every_entry_is_checked() -> None:
    scene = Scene().write(10)
    name = scene.storage.listdir()[0]
    content = bytearray(scene.storage.content(name))
    at = content.index(command(5, 100))
    content[at + 50] ^= 1
    scene.storage.rot(name, bytes(content))
    reader = scene.reader(*([index] for index in range(1, 11)))
    scene.disk.go_on()
    assert reader.taken == commands(range(1, 5))
    assert list(scene.journal.damages.entries) == [5]
    assert scene.fetching.parked


def test_who_waits_for_a_damaged_entry_is_served_when_it_is_whole() -> None:
    """Others are served meanwhile, and nothing is read again and again."""
    scene = Scene().write(10)
    name = scene.storage.listdir()[0]
    whole = scene.storage.content(name)
    scene.storage.rot(name, flipped(whole, whole.index(command(5, 100)) + 50))
    reader = scene.reader([5], [6])
    scene.disk.go_on()
    other = scene.reader([7])
    scene.disk.go_on()
    assert other.taken == commands([7])
    assert reader.taken == []
    jobs = scene.disk.jobs
    scene.disk.go_on()
    assert scene.disk.jobs == jobs
    scene.storage.rot(name, whole)
    scene.journal.rewritten(scene.journal.damages.entries[5])
    scene.fetching.repaired()
    scene.disk.go_on()
    assert reader.taken == commands([5, 6])
    assert not scene.fetching.parked
    assert not scene.failures


def test_a_waiter_for_a_damaged_entry_is_dropped_as_any() -> None:
    scene = Scene().write(10)
    name = scene.storage.listdir()[0]
    whole = scene.storage.content(name)
    scene.storage.rot(name, flipped(whole, whole.index(command(5, 100)) + 50))
    reader = scene.reader([5])
    scene.disk.go_on()
    scene.fetching.drop(reader)
    assert not scene.fetching.parked


def test_an_entry_that_was_replaced_meanwhile_does_not_come_back() -> None:
    scene = Scene().write(10)
    reader = scene.reader([9], [10])
    scene.journal.log.truncate(9)
    scene.journal.log.add(b"another", 10, 2)
    scene.disk.go_on()
    assert reader.taken == [command(9, 100), b"another"]
    assert scene.journal.log.read(10) == b"another"


def test_a_fetch_reads_what_a_snapshot_keeps_and_what_the_log_holds() -> None:
    scene = Scene(SMALL).write(60, size=60)
    for index in (40, 50):
        writer = scene.journal.begin_snapshot(index, 1, array("Q", [2, 20]))
        writer.write(b"state")
        writer.finish()
    clean_up(scene.journal)
    reader = scene.reader([2], [20, 55], [60])
    scene.disk.go_on()
    assert reader.taken == commands([2, 20, 55, 60], 60)


def _fail(number: int) -> None:
    raise OSError(number, "as the test says")


def test_a_waiter_without_needs_causes_no_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FETCH_AHEAD_BYTES", 1_000)
    scene = Scene().write(10)
    before = scene.storage.read_bytes
    scene.fetching.ask(Reader(scene))
    scene.disk.go_on()
    assert scene.storage.read_bytes == before


def test_an_entry_given_from_memory_counts_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing would be read ahead of who reads in order."""
    world = World("abc", seed=1).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    used: list[int] = []
    monkeypatch.setattr(BodyFetcher, "used", lambda _, index: used.append(index))
    last = leader.node.last_index
    assert leader.node.read_cached(last)
    assert used == [last]
