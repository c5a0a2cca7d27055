"""Commands into entries and replies back: no command is answered before, or without, a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fifo.machine.commands import Lead, PauseQueue
from fifo.machine.contract import to_list
from fifo.machine.replies import Done
from fifo.wire import Buffer
from node.broker import entry, limits
from node.broker.broker import Broker
from node.broker.clock import Clocks, ClusterClock
from node.broker.connections.authentication import Authentication
from node.broker.connections.handshake import Identity
from node.broker.counters import Counters
from node.broker.proposals import Proposals, Waiter
from node.broker.stretches import Stretches
from node.broker.turns import Turns
from node.broker.upgrade import Upgrade
from node.config import LimitSettings, single_node_config
from node.journal.io.jobs import Inline
from node.raft import Outcome, RaftNode
from node.roster import Roster


class Log:
    """A Raft that does with entries what a test says."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, Callable[[Outcome, int], None]]] = []

    def submit(self, parts: Sequence[Buffer], done: Callable[[Outcome, int], None]) -> None:
        """Keep it."""
        self.entries.append((b"".join(parts), done))


class Requested:
    """Turns that are requested and never come."""

    def __init__(self, requests: list[str]) -> None:
        self._requests = requests

    def ask(self) -> None:
        self._requests.append("turn")

    def within(self, seconds: float) -> None:
        self._requests.append(f"turn within {seconds:g}")


class Scene:
    """Proposals over such a log, in a time that stands still unless moved."""

    def __init__(self) -> None:
        self.now = 50.0
        self.log = Log()
        self.told: list[str] = []
        self.proposals = Proposals(
            cast("RaftNode", self.log),
            Clocks(lambda: self.now, lambda: 7, ClusterClock(lambda: self.now)),
            cast("Turns", Requested(self.told)),
            Counters(),
            weigh=lambda plain: 0,
            upgrade=cast("Upgrade", SimpleNamespace(used=1)),
        )

    def propose(self, name: str, raw: bytes = b"", *, patient: bool = False) -> None:
        """Propose a command, with a waiter for its reply."""
        waiter = Waiter(
            lambda _: self.told.append(f"{name} answered"),
            lost=lambda outcome: self.told.append(f"{name} {outcome.value}"),
        )
        plain = to_list(PauseQueue(name))
        self.proposals.propose(lambda _: plain, waiter, weight=0, raw=raw, patient=patient)

    def end(self, at: int, outcome: Outcome, index: int = 9) -> None:
        """The outcome of an entry, after its application where it has one."""
        payload, done = self.log.entries[at]
        if outcome is Outcome.COMMITTED:
            count = len(entry.unpack(memoryview(payload)).commands)
            self.proposals.applied(index, [Done()] * count, [])
        done(outcome, index)
        for applied in self.proposals.take_applied():
            for waiter, reply in zip(applied.waiters or [], applied.replies, strict=True):
                assert waiter is not None
                waiter.answer(reply)


@pytest.fixture
def scene() -> Scene:
    return behind_an_entry()


def behind_an_entry() -> Scene:
    """A scene whose command `a` is on its way."""
    made = Scene()
    made.propose("a")
    made.proposals.flush()
    made.told.clear()
    return made


def test_no_command_is_answered_before_the_commit(scene: Scene) -> None:
    assert len(scene.log.entries) == 1
    assert scene.told == []
    scene.end(0, Outcome.COMMITTED)
    assert scene.told == ["a answered"]


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.COMMITTED])
def test_an_uncommitted_command_is_never_answered(scene: Scene, outcome: Outcome) -> None:
    scene.end(0, outcome)
    assert scene.told == [f"a {outcome.value}"]


def test_commands_gathered_behind_an_entry_leave_together_when_it_commits(scene: Scene) -> None:
    scene.propose("b")
    scene.propose("c")
    scene.proposals.flush()
    assert len(scene.log.entries) == 1
    scene.end(0, Outcome.COMMITTED)
    assert len(scene.log.entries) == 2
    scene.end(1, Outcome.COMMITTED, 10)
    # In company a turn is worth nothing before that commit, or before the wait is over.
    assert scene.told == ["turn within 0.002", "a answered", "b answered", "c answered"]


def test_a_patient_command_leaves_with_the_next_that_is_waited_for() -> None:
    scene = Scene()
    scene.propose("ack", patient=True)
    scene.proposals.flush()
    assert not scene.log.entries
    scene.propose("publish")
    scene.propose("more")
    scene.proposals.flush()
    assert scene.told == ["turn within 0.002", "turn"]
    (payload, _), *others = scene.log.entries
    assert len(entry.unpack(memoryview(payload)).commands) == 3
    assert not others


def test_a_patient_command_leaves_alone_when_its_wait_is_over() -> None:
    scene = Scene()
    scene.propose("ack", patient=True)
    assert scene.proposals.wait() == pytest.approx(limits.GATHER_SECONDS)
    scene.now += limits.GATHER_SECONDS
    scene.proposals.flush()
    assert len(scene.log.entries) == 1


def test_a_commit_sends_no_patient_command_after_it() -> None:
    scene = behind_an_entry()
    scene.propose("ack", patient=True)
    scene.end(0, Outcome.COMMITTED)
    assert len(scene.log.entries) == 1
    scene.propose("publish")
    assert scene.told == ["turn within 0.002", "a answered", "turn"]
    scene.proposals.flush()
    assert len(scene.log.entries) == 2


def behind_messages(*behind: str) -> Scene:
    """A scene whose first entry, of `a` with 5 KiB and `b`, was answered after 1 ms; commands that
    came meanwhile are behind it."""
    made = Scene()
    made.propose("a", bytes(5 * limits.KIB))
    made.propose("b", b"body")
    made.proposals.flush()
    for name in behind:
        made.propose(name, b"body")
    made.now += 0.001
    made.end(0, Outcome.COMMITTED)
    made.told.clear()
    return made


def test_behind_an_entry_of_messages_the_next_waits_for_those_that_it_answered() -> None:
    scene = behind_messages("c")
    assert len(scene.log.entries) == 1
    assert scene.proposals.wait() == pytest.approx(0.001)
    scene.propose("a", b"body")
    scene.propose("b", b"body")
    assert scene.told[-1] == "turn"
    scene.proposals.flush()
    assert len(scene.log.entries) == 2
    scene.end(1, Outcome.COMMITTED, 10)
    assert scene.told[-3:] == ["c answered", "a answered", "b answered"]


def test_what_may_wait_for_nothing_has_a_turn_at_once_behind_an_entry_of_messages() -> None:
    scene = behind_messages("c")
    scene.propose("nack")
    assert scene.told == ["turn"]
    scene.proposals.flush()
    (_, (payload, _)) = scene.log.entries
    assert len(entry.unpack(memoryview(payload)).commands) == 2


def test_a_commit_sends_at_once_what_has_its_company() -> None:
    scene = behind_messages("c")
    scene.now += limits.GATHER_SECONDS
    scene.proposals.flush()
    for name in ("d", "e"):
        scene.propose(name, b"body")
    scene.end(1, Outcome.COMMITTED, 10)
    assert len(scene.log.entries) == 3, "an entry without messages calls for no company"


def test_company_that_does_not_come_is_waited_for_two_milliseconds_from_the_last_entry() -> None:
    scene = behind_messages()
    scene.propose("c", b"body")
    (said,) = scene.told
    assert said.startswith("turn within 0.001")
    scene.proposals.flush()
    assert len(scene.log.entries) == 1
    scene.now += limits.GATHER_SECONDS
    scene.proposals.flush()
    assert len(scene.log.entries) == 2


@pytest.mark.parametrize(("took_s", "wait_s"), [(0.004, 0.001), (1.0, limits.GATHER_SECONDS)])
def test_where_a_commit_takes_long_company_is_waited_for_a_part_of_that(
    took_s: float, wait_s: float
) -> None:
    scene = Scene()
    scene.propose("a", bytes(5 * limits.KIB))
    scene.proposals.flush()
    scene.now += took_s
    scene.propose("b", b"body")
    scene.end(0, Outcome.COMMITTED)
    assert len(scene.log.entries) == 1
    assert scene.proposals.wait() == pytest.approx(wait_s)
    scene.propose("c", b"body")
    scene.proposals.flush()
    assert len(scene.log.entries) == 2


def test_a_command_whose_company_is_overdue_has_a_turn_at_once() -> None:
    scene = behind_messages()
    scene.now += limits.GATHER_SECONDS
    scene.propose("c", b"body")
    assert scene.told == ["turn"]


def test_a_command_with_bodies_asks_for_a_turn_at_once_as_any_other_does() -> None:
    scene = Scene()
    scene.proposals.propose(lambda at: [1, "q", at], None, weight=0, raw=b"body")
    assert scene.told == ["turn"]


def test_after_the_leadership_no_waiter_is_answered(scene: Scene) -> None:
    scene.propose("b")
    scene.proposals.stop()
    scene.told.clear()
    scene.log.entries[0][1](Outcome.UNKNOWN, 9)
    scene.log.entries[0][1](Outcome.COMMITTED, 9)
    assert scene.told == []
    assert len(scene.log.entries) == 1, "nothing of this term may be proposed in a later one"


def test_entries_in_flight_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENTRIES_IN_FLIGHT_MAX", 2)
    for name in ("b", "c", "d"):
        scene.propose(name)
        scene.now += 1
        scene.proposals.flush()
    assert len(scene.log.entries) == 2
    scene.end(0, Outcome.COMMITTED)
    assert len(scene.log.entries) == 3


def test_a_follower_takes_the_time_of_applied_entries() -> None:
    now = 1.0
    broker = Broker(
        Identity("n1", bytes(16), Roster(single_node_config(Path()).nodes), ()),
        LimitSettings(),
        now=lambda: now,
        wall_ms=lambda: 0,
        entropy=bytes,
        turns=Turns(lambda: None, lambda: None),
        authentication=Authentication(
            (),
            now=lambda: now,
            wall_ms=lambda: 0,
            call_later=lambda delay, callback: None,
            thread=Inline,
        ),
        stopwatch=lambda: now,
        stretches=Stretches(lambda: now),
    )
    broker._upgrade = cast("Upgrade", SimpleNamespace(used=1))
    packed = [entry.pack_command([1, 5])]
    assert entry.unpack(
        memoryview(b"".join(entry.pack(packed, [], version=1, stamp_ms=1, wall_ms=1)))
    )
    payload = b"".join(entry.pack(packed, [], version=1, stamp_ms=1_000_000, wall_ms=1))
    broker.apply(3, 5, memoryview(payload))
    assert broker.clock.now_ms() == 1_000_000
    assert broker.host.machine.state.term == Lead(5).term
    for _ in range(60):  # Without an entry its time goes on: looks are no pause of a second.
        now += limits.LOOK_SECONDS
        broker.look(limits.LOOK_SECONDS)
    assert broker.clock.now_ms() == pytest.approx(1_003_000, abs=1)
