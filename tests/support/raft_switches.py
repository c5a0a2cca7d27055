"""Stock behaviours put back below the core: in the journal, the transport and the seams.

Owns the faulty behaviours of hazards that no core of `raft_mutants.py` can show, as switches; by
the same names they stand in docs/raft.md. `tests/node/raft/test_switches.py` holds them against the
tests that have to go red.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from unittest.mock import patch

import pysyncobj.syncobj

from node.journal import records
from node.journal.io.jobs import Inline, Job, Prefetch, Steps
from node.journal.io.readers import LogReader
from node.journal.log import DurableLog
from node.journal.recovery import recovery
from node.journal.recovery.recovery import Recovery, ReplayedLog
from node.journal.segments import NewSegment, Preallocation
from node.journal.writer import Group, GroupJob
from node.peers.accepting import Acceptor
from tests.mutants.switch import Switch, replaced

if TYPE_CHECKING:
    import socket


def _every_record_is_whole(*_: object) -> bool:
    return True


_set_current_term = DurableLog.set_term
_write_group = Group.write


def _set_without_sync(log: DurableLog, term: int, voted_for: str | None) -> None:
    with patch.object(DurableLog, "sync"), patch.object(DurableLog, "_write_mark"):
        _set_current_term(log, term, voted_for)


def _write_and_forget(group: Group) -> None:
    with suppress(OSError):
        _write_group(group)


_make_tail_durable = Recovery._make_tail_durable
_make_segment = NewSegment.make
_result = Job.result
_step = Steps.step
_advance = Prefetch._advance


def _uncut_tail(recovery: Recovery, found: ReplayedLog) -> None:
    file = recovery._segments.file(recovery._segments.current)
    with patch.object(type(file), "truncate", lambda *_: None):
        _make_tail_durable(recovery, found)


def _whatever_follows(*_: object) -> None:
    return None


def _uncut_room(*_: object) -> bool:
    return False


def _segment_first(group: Group) -> None:
    following, group.following = group.following, None
    if following is not None:
        following.make()
    _write_group(group)
    group.following = following


def _make_unsynced(new: NewSegment) -> None:
    with patch.object(new._storage, "sync_folder", lambda: None):
        _make_segment(new)


def _goes_on(steps: Steps[object]) -> object:
    steps._job = None
    return _step(steps)


def _undone_result(job: Job[object]) -> object:
    return _result(job) if job._work is None or isinstance(job, GroupJob) else None


@contextmanager
def _nobody_waits() -> Iterator[None]:
    with patch.object(Steps, "step", _goes_on), patch.object(Job, "result", _undone_result):
        yield


def _run_on_the_loop(steps: Steps[object]) -> object:
    with patch.object(steps, "_worker", Inline()):
        return _step(steps)


def _read_on_the_loop(prefetch: Prefetch[object]) -> None:
    with patch.object(prefetch._steps, "_worker", Inline()):
        _advance(prefetch)


def _keeps_what_it_read(_: LogReader) -> None:
    pass


def _never_again(acceptor: Acceptor, listening: socket.socket) -> None:
    acceptor._failed()
    listening.close()


@contextmanager
def _pickle_is_back() -> Iterator[None]:
    with patch.object(pysyncobj.syncobj, "pickle", pickle):
        yield


SWITCHES: dict[str, tuple[str, Switch]] = {
    "IgnoresChecksums": (
        "b07: a record counts whatever its checksum says",
        replaced(records, "record_is_whole", _every_record_is_whole),
    ),
    "VotesUnsynced": (
        "b08: term and vote are written, and synced when something else is",
        replaced(DurableLog, "set_term", _set_without_sync),
    ),
    "ClosesListener": (
        "b13: the first failed accept closes the listener",
        replaced(Acceptor, "_again", _never_again),
    ),
    "CountsTo32Bits": (
        "b14: positions in the log have 32 bits",
        replaced(records, "_RECORD", struct.Struct("<2sBBII4xQQI")),
    ),
    "IgnoresWriteErrors": (
        "b15: an entry that could not be written counts all the same",
        replaced(Group, "write", _write_and_forget),
    ),
    "KeepsTornTails": (
        "b07: a torn tail is written over and not cut, so that its records stay behind",
        replaced(Recovery, "_make_tail_durable", _uncut_tail),
    ),
    "CutsWhateverFollows": (
        "b07: a tail counts as torn whatever follows it",
        replaced(recovery, "proof_of_damage", _whatever_follows),
    ),
    "KeepsRoom": (
        "a segment that is left keeps the room behind its last record",
        replaced(Preallocation, "cut", _uncut_room),
    ),
    "BeginsSegmentFirst": (
        "a new segment is named before the records in front of it are durable",
        replaced(Group, "write", _segment_first),
    ),
    "BeginsSegmentUnsynced": (
        "a new segment counts before its name is durable",
        replaced(NewSegment, "make", _make_unsynced),
    ),
    "GoesOnBeforeItsDisk": (
        "snapshots and compacted files count before they are durable",
        _nobody_waits,
    ),
    "CleansUpOnTheLoop": (
        "what snapshots, compactions and installations wait for is done on the loop",
        replaced(Steps, "step", _run_on_the_loop),
    ),
    "ReadsOnTheLoop": (
        "what a peer that is far behind is sent is read on the loop",
        replaced(Prefetch, "_advance", _read_on_the_loop),
    ),
    "SendsWhatItReadBefore": (
        "what was read for a peer stays when the leadership ends",
        replaced(LogReader, "stop", _keeps_what_it_read),
    ),
    "Unpickles": ("b19: the library finds the real pickle", _pickle_is_back),
}
"""By name: what it does, and the switch."""
