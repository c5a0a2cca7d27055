"""The library is the one we override: version, names, parameters, sources, seams, numbers."""

from __future__ import annotations

import ast
import pathlib
import random
import threading
from importlib import metadata
from typing import TYPE_CHECKING

import pysyncobj.syncobj
import pytest
from pysyncobj.config import FAIL_REASON
from pysyncobj.journal import Journal as LibraryJournal

import node.raft
from node.raft.config import boot_clock
from node.raft.core import CANDIDATE, FOLLOWER, LEADER, Core
from node.raft.errors import RaftStopped
from node.raft.pysyncobj import pin, seams
from node.raft.pysyncobj.library import STATE, Library, LibraryLog, mangled
from node.testing.disk import SimStorage
from tests.support import raft_probe
from tests.support.journals import fill, open_journal
from tests.support.raft_world import World

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_installed_library_is_the_pinned_one() -> None:
    assert metadata.version("pysyncobj") == pysyncobj.syncobj.VERSION == pin.VERSION == "0.3.17"
    pin.check_names()


@pytest.mark.parametrize("name", sorted(pin.sources()))
def test_the_source_of_the_overridden_methods_is_unchanged(name: str) -> None:
    assert pin.digest(pin.sources()[name]) == pin.DIGESTS[name]


def test_every_override_is_of_a_pinned_method() -> None:
    ours = [kind for kind in Core.__mro__ if issubclass(kind, Library)]
    own = {name for kind in ours for name, value in vars(kind).items() if callable(value)}
    stock = {name for name in dir(pysyncobj.syncobj.SyncObj) if not name.startswith("__")}
    assert own & stock <= set(pin.PARAMETERS)
    overridden = {name for name in own if name.startswith(mangled(""))}
    assert overridden
    assert overridden <= stock


def test_a_plain_name_and_the_name_of_the_library_are_one_place() -> None:
    core = raft_probe.core(World("abc").start().nodes["a"].node)
    taken = vars(pysyncobj.syncobj.SyncObj)
    for plain, private in STATE.items():
        assert private in pin.ATTRIBUTES
        assert plain not in taken
        held, marker = getattr(core, plain), object()
        setattr(core, mangled(private), marker)
        assert getattr(core, plain) is marker
        setattr(core, plain, held)
        assert getattr(core, mangled(private)) is held


def test_no_method_of_ours_hides_a_public_one_of_the_library() -> None:
    public = {n for n in vars(pysyncobj.syncobj.SyncObj) if not n.startswith("_")}
    ours = [kind for kind in Core.__mro__ if issubclass(kind, Library)]
    assert not public & {name for kind in ours for name in vars(kind)}


def test_every_attribute_we_touch_exists_on_an_instance() -> None:
    core = raft_probe.core(World("abc").start().nodes["a"].node)
    for name in pin.ATTRIBUTES:
        assert hasattr(core, mangled(name))


def test_constants_of_the_library_have_the_expected_values() -> None:
    assert (FOLLOWER, CANDIDATE, LEADER) == (0, 1, 2)
    types = pysyncobj.syncobj._COMMAND_TYPE
    assert (types.REGULAR, types.NO_OP, types.MEMBERSHIP, types.VERSION) == (0, 1, 2, 3)
    assert (FAIL_REASON.SUCCESS, FAIL_REASON.UNKNOWN_OUTCOME) == (0, 7)


def test_the_abstract_members_of_the_library_are_all_ours() -> None:
    wanted = {name for name in vars(LibraryJournal) if name != "__init__"}
    ours = vars(LibraryLog)
    assert {name for name in wanted if callable(getattr(LibraryJournal, name))} <= set(ours)


def test_b27_the_log_cannot_be_emptied() -> None:
    journal = open_journal(SimStorage())
    fill(journal, 3)
    log = LibraryLog(journal.log)
    with pytest.raises(RaftStopped, match="refusing to clear the log"):
        log.clear()
    with pytest.raises(RaftStopped, match="refusing to drop 2 entries"):
        log.deleteEntriesTo(2)
    assert len(log) == 3


def test_another_version_or_a_moved_seam_refuses_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pysyncobj.version, "VERSION", "0.3.14")
    with pytest.raises(pin.PinBroken, match=r"version 0\.3\.14 is installed"):
        pin.check_names()
    monkeypatch.undo()
    monkeypatch.delattr(pysyncobj.syncobj.SyncObj, mangled("getEntries"))
    with pytest.raises(pin.PinBroken, match="getEntries is missing"):
        pin.check_names()
    monkeypatch.undo()
    monkeypatch.setattr(pysyncobj.syncobj.SyncObj, mangled("setState"), lambda self: None)
    with pytest.raises(pin.PinBroken, match="other parameters"):
        pin.check_names()
    monkeypatch.undo()
    monkeypatch.delattr(pysyncobj.syncobj, "monotonicTime")
    with pytest.raises(pin.PinBroken, match="monotonicTime"):
        pin.check_names()


def test_b19_pickle_is_poisoned_where_the_library_looks_for_it() -> None:
    with pytest.raises(RaftStopped):
        pysyncobj.syncobj.pickle.loads(b"")
    with pytest.raises(RaftStopped):
        pysyncobj.syncobj.time.sleep(0)
    with pytest.raises(RaftStopped):
        pysyncobj.syncobj.Serializer(None).serialize()


def test_b19_no_module_of_ours_imports_pickle() -> None:
    folder = pathlib.Path(node.raft.__file__).parent
    for path in folder.rglob("*.py"):
        for statement in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(statement, ast.Import):
                names = [alias.name for alias in statement.names]
            elif isinstance(statement, ast.ImportFrom):
                names = [statement.module or ""]
            assert not {name.split(".")[-1] for name in names} & {"pickle", "marshal", "shelve"}


def test_the_library_sees_the_clock_and_randomness_of_the_running_node() -> None:
    try:
        seams.run_as(lambda: 42.0, random.Random(1))
        assert pysyncobj.syncobj.monotonicTime() == 42.0
        assert pysyncobj.syncobj.random.random() == random.Random(1).random()
    finally:
        seams.run_as(boot_clock, random.Random())


def test_a_node_of_another_thread_leaves_clock_and_randomness_alone() -> None:
    seams.run_as(lambda: 42.0, random.Random(1))
    try:
        other = threading.Thread(target=seams.run_as, args=(lambda: 7.0, random.Random(2)))
        other.start()
        other.join()
        assert pysyncobj.syncobj.monotonicTime() == 42.0
        assert pysyncobj.syncobj.random.random() == random.Random(1).random()
    finally:
        seams.run_as(boot_clock, random.Random())


def test_the_librarys_own_doors_are_shut() -> None:
    core = raft_probe.core(World("abc").start().nodes["a"].node)
    doors: list[Callable[[], object]] = [
        lambda: core._applyCommand(b"", None, 3),
        lambda: core.setCodeVersion(0),
        lambda: core.load_dump(),
    ]
    for shut in doors:
        with pytest.raises(RaftStopped):
            shut()
