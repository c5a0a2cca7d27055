"""The hazards b01 to b28 on PySyncObj as it ships: each function sees the harm that it names.

`python -m tests.node.raft.stock_hazards` runs them all and prints, as JSON, what went otherwise
than expected: nothing, while the library is what we take it for. `stock_proofs.py` runs it. What is
not here cannot be shown in one process: `docs/raft.md` says so by hazard.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import pickle
import resource
import socket
import struct
import tempfile
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pysyncobj
from pysyncobj import journal as journals
from pysyncobj.config import SERIALIZER_STATE
from pysyncobj.poller import POLL_EVENT_TYPE, createPoller
from pysyncobj.tcp_server import SERVER_STATE, TcpServer

from tests.node.raft.stock import FAR, TURN_SECONDS, Answers, Clock, Frame, Group, Message, Stock

if TYPE_CHECKING:
    from collections.abc import Callable

SUCCESS: int = pysyncobj.FAIL_REASON.SUCCESS
OPAQUE = 16
"""A command type that the library carries and does not apply."""


def raised(work: Callable[[], object]) -> Exception | None:
    """Return the exception that a call raised."""
    try:
        work()
    except Exception as error:  # whatever it is, it is the finding
        return error
    return None


def put_all(group: Group, leader: Stock, values: range) -> None:
    """Commit values."""
    for value in values:
        leader.put(value)
    group.turn()


def b01_commit_on_the_snapshot_path() -> None:
    group = Group(logCompactionBatchSize=100)
    old = group.elect("a")
    group.cut = {"a"}
    told = Answers()
    for value in range(3):
        old.put(f"lost {value}", callback=told)
    group.turn()
    new = group.elect("b")
    put_all(group, new, range(20))
    new.forceLogCompaction()
    group.turn()
    group.cut = set()
    for _ in range(6):
        Clock.now += TURN_SECONDS
        new.doTick(0)
        for source, target, message in group.take():
            group.nodes[target].receive(source, message)
            old._SyncObj__raftElectionDeadline = FAR
            old.doTick(0)  # Between two pieces of the snapshot.
    assert SUCCESS in told


def b02_the_tail_is_cleared_for_a_newer_dump() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = {"journalFile": f"{folder}/journal", "fullDumpFile": f"{folder}/dump"}
        group = Group("a", useFork=False, **files)
        node = group.elect("a")
        put_all(group, node, range(20))
        node.forceLogCompaction()
        # As while the forked child of a large dump still runs.
        serializer = node._SyncObj__serializer
        group.turn(1)
        serializer.checkSerializing = lambda: (SERIALIZER_STATE.SERIALIZING, None)
        told = Answers()
        for value in range(20, 50):
            node.put(value, callback=told)
        group.turn()
        assert told == [SUCCESS] * 30
        node._SyncObj__raftLog.onOneSecondTimer()
        group.start("a")
        group.elect("a")
        assert 49 not in group.nodes["a"].applied


def b03_compaction_rewrites_what_is_kept() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = journals.createJournal(f"{folder}/journal")
        for index in range(1, 101):
            journal.add(b"entry", index, 1)
        add, left = journal.add, [10]

        def killed(*entry: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise InterruptedError
            add(*entry)

        journal.add = killed
        assert raised(lambda: journal.deleteEntriesTo(50))
        assert len(journals.createJournal(f"{folder}/journal")) == 10


def b04_a_late_frame_erases() -> None:
    group = Group()
    leader = group.elect("a")
    put_all(group, leader, range(1))
    late = group.carried_between("a", "b", "append_entries")
    first = next(message for message in late if message["entries"])
    put_all(group, leader, range(1, 21))
    follower = group.nodes["b"]
    end = follower.log_end
    follower.receive("a", first)
    assert follower.log_end < end - 15
    assert leader._SyncObj__raftMatchIndex[pysyncobj.node.Node("b")] == end


def b05_a_raising_callback_applies_twice() -> None:
    def disturbed(_: object, reason: int) -> None:
        raise ZeroDivisionError

    group = Group("a")
    node = group.elect("a")
    node.put(1, callback=disturbed)
    assert isinstance(raised(group.turn), ZeroDivisionError)
    group.turn()
    assert node.applied == [1, 1]


def b06_a_raising_apply_is_tried_for_ever() -> None:
    group = Group("a")
    node = group.elect("a")
    node.put("poison")
    node.put("after")
    for _ in range(20):
        raised(group.turn)
    assert node.tries > 10
    assert node.applied == []


def b07_a_flipped_bit_is_accepted() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        journal = journals.createJournal(str(path))
        journal.add(b"\x00hello", 1, 1)
        journal._destroy()
        content = path.read_bytes()
        path.write_bytes(content.replace(b"hello", b"jello"))
        assert journals.createJournal(str(path))[0] == (b"\x00jello", 1, 1)


def b08_an_unreadable_vote_is_no_vote() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/journal"
        votes = []
        for candidate in "bc":
            node = Stock("a", "bc", journalFile=path)
            node.receive(
                candidate,
                {"type": "request_vote", "term": 7, "last_log_index": 9, "last_log_term": 6},
            )
            votes += [target for target, message in node.wire.sent]
            node._doDestroy()
            Path(f"{path}.meta").write_bytes(b"")
        assert votes == ["b", "c"]


def b09_a_queued_command_is_reported_as_failed() -> None:
    node = Stock("a", "", appendEntriesUseBatch=False, commandsQueueSize=200_000)
    told = Answers()
    submitted = 0

    def submit() -> None:
        nonlocal submitted
        while submitted < 100_000:
            submitted += 1
            node._applyCommand(b"x", told, OPAQUE)

    assert isinstance(raised(submit), BlockingIOError)
    assert len(node._SyncObj__commandsQueue._FastQueue__queue) == submitted


def b10_a_state_that_is_gone_goes_unnoticed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        group = Group("a", journalFile=f"{folder}/journal")
        node = group.elect("a")
        put_all(group, node, range(50))
        node.forceLogCompaction()
        group.turn()
        assert len(node.applied) == 50
        node._doDestroy()
        again = group.start("a")
        group.elect("a")
        assert again._isLeader()
        assert again.applied == []


def b11_membership_changes_overlap() -> None:
    group = Group(dynamicMembershipChange=True)
    leader = group.elect("a")
    group.cut = {"a"}
    told = Answers()
    for name in "def":
        leader.addNodeToCluster(name, callback=told)
    leader.doTick(0)
    assert told == []
    assert len(leader.otherNodes) == 5


def b12_an_isolated_leader_leads_on() -> None:
    group = Group()
    old = group.elect("a")
    group.cut = {"a"}
    group.elect("b")
    group.turn(40, 0.5)
    assert old._isLeader()
    group.cut = set()
    group.nodes["b"].wire.sent.clear()
    group.nodes["b"].receive("a", group.carried_between("a", "b", "append_entries")[-1])
    assert group.nodes["b"].wire.sent == []


class _OutOfDescriptors:
    def accept(self) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def close(self) -> None:
        pass


def b13_one_failed_accept_closes_the_listener() -> None:
    server = TcpServer(createPoller("auto"), "127.0.0.1", 0, None)
    server.bind()
    server._TcpServer__socket.close()
    server._TcpServer__socket = _OutOfDescriptors()
    server._TcpServer__onNewConnection(0, POLL_EVENT_TYPE.READ)
    assert server._TcpServer__state == SERVER_STATE.UNBINDED


class _Endless:
    def write(self, offset: int, values: bytes) -> None:
        pass


def b14_past_four_gib_memory_and_file_part() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = journals.createJournal(f"{folder}/journal")
        journal._FileJournal__journalFile = _Endless()
        journal._FileJournal__currentOffset = 2**32 - 10
        assert isinstance(raised(lambda: journal.add(b"entry", 1, 1)), struct.error)
        assert len(journal) == 1


def b15_a_full_disk_parts_memory_and_file() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/journal"
        journal = journals.createJournal(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            assert raised(lambda: journal.add(bytes(10_000), 1, 1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(journal) == 1
        assert len(journals.createJournal(path)) == 0


def b16_a_lost_forward_is_never_answered() -> None:
    group = Group()
    group.elect("a")
    lost: list[Message] = []

    def lose(source: str, target: str, message: Message) -> bool:
        if message["type"] == "apply_command":
            lost.append(message)
        return message in lost

    group.lost = lose
    told = Answers()
    group.nodes["b"].put(1, callback=told)
    group.turn(120, 0.5)
    assert len(lost) == 1
    assert group.nodes["a"]._isLeader()
    assert told == []


def b17_an_unknown_version_shifts_the_log() -> None:
    group = Group("a")
    node = group.elect("a")
    node.put(1)
    node._applyCommand(pickle.dumps(5), None, pysyncobj.syncobj._COMMAND_TYPE.VERSION)
    node.put(2)
    group.turn()
    assert node.applied.count(2) > 1


class _CountingMap(mmap.mmap):
    flushes = 0

    def flush(self, *args: Any) -> None:
        _CountingMap.flushes += 1
        super().flush(*args)


def b18_nothing_is_synced() -> None:
    with (
        patch.object(journals.mmap, "mmap", _CountingMap),
        patch.object(os, "fsync") as fsync,
        patch.object(os, "fdatasync") as fdatasync,
        tempfile.TemporaryDirectory() as folder,
    ):
        group = Group("a", journalFile=f"{folder}/journal")
        node = group.elect("a")
        told = Answers()
        for value in range(200):
            node.put(value, callback=told)
        group.turn(20)
        assert told == [SUCCESS] * 200
        assert not fsync.called
        assert not fdatasync.called
        assert not _CountingMap.flushes
        node._doDestroy()
        assert _CountingMap.flushes, "an orderly end does flush"


class _Bomb:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def b19_the_peer_port_executes_what_it_is_sent() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
        probe.close()
        name = "{}:{}".format(*address)
        conf = pysyncobj.SyncObjConf(autoTick=False, bindAddress=name)
        node = pysyncobj.SyncObj(name, ["127.0.0.1:1"], conf)
        witness = Path(folder) / "executed"
        content = zlib.compress(pickle.dumps(_Bomb(str(witness))))
        with socket.create_connection(address) as stranger:
            stranger.sendall(struct.pack("i", len(content)) + content)
            for _ in range(100):
                raised(lambda: node.doTick(0.05))
                if witness.exists():
                    break
        assert witness.exists()


def b20_an_ack_of_an_earlier_leadership_counts() -> None:
    group = Group("abcde")
    group.elect("a")
    held: list[Frame] = []

    def only_to_b(source: str, target: str, message: Message) -> bool:
        if (source, target) == ("b", "a") and message["type"] == "next_node_idx":
            held.append((source, target, message))
            return True
        return source == "a" and target in "cde"

    group.lost = only_to_b
    put_all(group, group.nodes["a"], range(5))
    group.lost = lambda *_: False
    group.cut = {"a", "b"}
    group.elect("c")
    group.cut = set()
    group.turn(10)
    assert group.nodes["b"].log_end < held[-1][2]["next_node_idx"] - 1
    group.cut = {"c"}
    leader = group.elect("a")
    group.lost = lambda source, target, message: source == "a" and target != "d"
    before = leader.commit_index
    for value in range(5, 10):
        leader.put(value)
    group.turn()
    assert leader.commit_index == before
    leader.receive("b", held[-1][2])
    leader.doTick(0)
    index = leader.commit_index
    assert index > before
    assert sum(node.log_end >= index for node in group.nodes.values()) == 2


def b21_a_command_near_the_batch_size_breaks_the_follower() -> None:
    group = Group(appendEntriesBatchSizeBytes=4_000)
    leader = group.elect("a")
    leader._applyCommand(bytes(2 * 4_000 - 21), None, OPAQUE)
    assert isinstance(raised(group.turn), EOFError | pickle.UnpicklingError)


def b22_an_old_snapshot_rolls_the_state_back() -> None:
    group = Group()
    leader = group.elect("a")
    group.cut = {"c"}
    put_all(group, leader, range(5))
    leader.forceLogCompaction()
    group.turn()
    group.cut = set()
    group.turn(8)
    late = [
        message
        for message in group.carried_between("a", "c", "append_entries")
        if message.get("serialized")
    ]
    put_all(group, leader, range(5, 15))
    follower = group.nodes["c"]
    assert len(follower.applied) == 15
    for message in late:
        follower.receive("a", message)
    assert len(follower.applied) < 15


def b23_a_commit_index_past_the_end_acknowledges() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/journal"
        journal = journals.createJournal(path)
        journal.add(b"\x01", 1, 0)
        journal.add(b"\x01", 2, 0)
        journal.setRaftCommitIndex(50)
        journal.onOneSecondTimer()
        journal._destroy()
        node = Stock("a", "bc", journalFile=path)
        node._SyncObj__raftElectionDeadline = 0
        node.doTick(0)
        node.receive("b", {"type": "response_vote", "term": 1})
        assert node._isLeader()
        told = Answers()
        for value in range(5):
            node.put(value, callback=told)
        node.doTick(0)
        node.doTick(0)
        assert told == [SUCCESS] * 5


def b24_an_answer_from_before_a_restart_counts() -> None:
    group = Group()
    leader = group.elect("a")
    heartbeat = group.carried_between("a", "b", "append_entries")[-1]
    held: list[Message] = []

    def hold(source: str, target: str, message: Message) -> bool:
        if message["type"] == "apply_command_response":
            held.append(message)
        return (source, target) == ("a", "b")

    group.lost = hold
    group.nodes["b"].put("first", callback=Answers())
    group.turn(1)
    leader.doTick(0)
    group.take()
    again = group.start("b")
    again.receive("a", heartbeat)
    told = Answers()
    again.put("never", callback=told)
    again.doTick(0)
    again.wire.sent.clear()
    again.receive("a", held[0])
    group.lost = lambda *_: False
    group.turn(8)
    assert told == [SUCCESS]
    assert "never" not in leader.applied


def tail_is_repaired(length: int) -> bool:
    """Whether a follower with so many conflicting entries follows after 200 heartbeats."""
    group = Group(appendEntriesBatchSizeBytes=2_000)
    old = group.elect("a")
    group.cut = {"a"}
    for _ in range(length):
        old._applyCommand(bytes(100), None, OPAQUE)
    group.turn()
    new = group.elect("b")
    for _ in range(length):
        new._applyCommand(bytes(100), None, OPAQUE)
    group.turn(8)
    group.cut = set()
    group.turn(200)
    assert new.commit_index > length
    return old.commit_index == new.commit_index


def b25_a_long_conflicting_tail_is_never_repaired() -> None:
    assert tail_is_repaired(10)
    assert not tail_is_repaired(300)


def follows_after_reset(late: bool) -> bool:
    """Whether a follower with a longer log of an earlier term follows, given a late reset."""
    group = Group("abcde")
    old = group.elect("c")
    group.lost = lambda source, target, message: target in "ade"
    put_all(group, old, range(20))
    group.lost = lambda *_: False
    group.cut = {"b", "c"}
    leader = group.elect("a")
    group.cut = {"c"}
    follower = group.nodes["b"]
    assert follower.log_end > leader.log_end + 10
    if late:
        past = {"next_node_idx": follower.log_end + 1, "reset": True, "success": False}
        leader.receive("b", {"type": "next_node_idx"} | past)
    put_all(group, leader, range(20, 23))
    group.turn(100)
    assert 22 in leader.applied
    return 22 in follower.applied


def b26_a_late_reset_leads_past_the_end() -> None:
    assert follows_after_reset(late=False)
    assert not follows_after_reset(late=True)


def b27_a_late_frame_and_compaction_empty_the_log() -> None:
    group = Group()
    leader = group.elect("a")
    put_all(group, leader, range(1))
    late = group.carried_between("a", "b", "append_entries")
    first = next(message for message in late if message["entries"])
    put_all(group, leader, range(1, 31))
    follower = group.nodes["b"]
    follower.forceLogCompaction()
    follower.doTick(0)
    follower.receive("a", first)
    follower.doTick(0)
    assert len(follower._SyncObj__raftLog) == 0
    follower._SyncObj__raftElectionDeadline = 0
    assert isinstance(raised(lambda: follower.doTick(0)), IndexError)


def b28_one_vote_counts_as_often_as_it_comes() -> None:
    node = Stock("a", "bcde")
    node._SyncObj__raftElectionDeadline = 0
    node.doTick(0)
    for _ in range(2):
        node.receive("b", {"type": "response_vote", "term": 1})
    assert node._isLeader()


def main() -> None:
    """Print what each hazard came to: null where the harm was seen."""
    found = {}
    for name, hazard in sorted(globals().items()):
        if name[:1] == "b" and name[1:3].isdigit():
            error = raised(hazard)
            found[name] = error and "".join(traceback.format_exception(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
