"""The single rules by themselves: append, replication, pre-vote, submissions, handshake."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from node.journal.io.jobs import Inline
from node.journal.journal import Journal
from node.peers.handshake import DialerSide, Identity, ListenerSide, PeerRefused
from node.peers.message import MessageRefused, PeerNode
from node.raft.append_entries import accept, check
from node.raft.config import Outcome, RaftConfig, RaftCounters
from node.raft.lease import NEVER
from node.raft.replication import Replication
from node.raft.submissions import Submission, Submissions
from node.testing.disk import SimStorage
from tests.support import raft_probe
from tests.support.journals import open_journal
from tests.support.raft_world import CLUSTER, World


def log_of(*terms: int) -> Journal:
    """A journal with entries of these terms, the first being the no-op of term 0."""
    journal = open_journal(SimStorage())
    for index, term in enumerate(terms, start=1):
        journal.log.add(b"\x01" if index == 1 else b"\x10x", index, term)
    journal.log.sync()
    return journal


def frame(previous: int, previous_term: int, *terms: int, commit: int = 1) -> dict[str, Any]:
    """An append-entries message of a leader of term 9."""
    return {
        "type": "append_entries",
        "term": 9,
        "commit_index": commit,
        "prevLogIdx": previous,
        "prevLogTerm": previous_term,
        "round": 1,
        "entries": [(b"\x10x", previous + 1 + place, term) for place, term in enumerate(terms)],
    }


def test_the_commit_index_moves_to_the_verified_entry_and_not_to_the_end_of_the_log() -> None:
    journal = log_of(0, 1, 1, 1, 1, 1)
    verdict = accept(journal.log, frame(2, 1, commit=6), 1, 1)
    assert (verdict.success, verdict.commit_index, verdict.next_index) == (True, 2, 3)
    verdict = accept(journal.log, frame(2, 1, 1, commit=6), 2, 2)
    assert (verdict.commit_index, verdict.next_index, verdict.added) == (3, 4, 0)
    assert journal.log.last_index == 6


def test_the_log_is_cut_at_the_first_conflict_and_nowhere_before() -> None:
    journal = log_of(0, 1, 1, 2, 2)
    verdict = accept(journal.log, frame(1, 0, 1, 1, 3), 1, 1)
    assert verdict.truncated
    assert [journal.log.term_at(index) for index in range(1, 5)] == [0, 1, 1, 3]
    assert journal.log.last_index == 4


def test_gap_and_mismatch_name_the_entry_after_the_commit_index() -> None:
    for message in (frame(9, 3), frame(4, 3)):
        verdict = accept(log_of(0, 1, 1, 2, 2).log, message, 2, 2)
        assert (verdict.success, verdict.next_index) == (False, 3)


@pytest.mark.parametrize(
    "message",
    [
        frame(0, 0),
        frame(1, 0) | {"prevLogIdx": None},
        frame(1, 0) | {"serialized": None},
        frame(1, 0) | {"transmission": "start", "data": b""},
        frame(1, 0) | {"entries": [(b"\x10x", 3, 1)]},
        frame(1, 0) | {"entries": [(b"\x10x", 2, 10)]},
        frame(1, 5) | {"entries": [(b"\x10x", 2, 4)]},
        frame(1, 0) | {"entries": [(b"\x00pickled", 2, 1)]},
        frame(1, 0) | {"entries": [(b"\x02member", 2, 1)]},
        frame(1, 0) | {"entries": [(b"", 2, 1)]},
    ],
)
def test_messages_that_no_leader_sends_are_refused_and_change_nothing(
    message: dict[str, Any],
) -> None:
    with pytest.raises(MessageRefused):
        check(message)


class Sent:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, node: PeerNode, message: dict[str, Any]) -> bool:
        self.messages.append(message)
        return True


def config(**changes: Any) -> RaftConfig:
    settings: dict[str, Any] = {
        "name": "a",
        "peers": {"b": ("127.0.0.1", 1)},
        "bind": ("127.0.0.1", 2),
        "cluster_id": CLUSTER,
    }
    return RaftConfig(**(settings | changes))


def answer(round_number: int, next_index: int, *, success: bool) -> dict[str, Any]:
    return {
        "round": round_number,
        "next_node_idx": next_index,
        "success": success,
        "reset": not success,
        "counted": True,
    }


def test_resets_of_rounds_before_the_probe_are_ignored_until_it_succeeds() -> None:
    b, sent = PeerNode("b"), Sent()
    replication = Replication(
        [b],
        config(),
        log_of(0, *[1] * 19),
        sent,
        clock=lambda: 0.0,
        counters=RaftCounters(),
        worker=Inline(),
        wake=lambda: None,
    )
    replication.begin(0)
    replication.connected(b, 0)
    progress = replication.peers[b]
    replication.send(1, 1, 1, heartbeat=True)
    assert replication.acknowledged(b, answer(1, 5, success=False))
    replication.send(1, 1, 2, heartbeat=True)
    probe = sent.messages[-1]
    assert probe["prevLogIdx"] == 4
    assert not replication.acknowledged(b, answer(1, 15, success=False))
    assert (progress.probing, progress.next_index) == (True, 5)
    replication.send(1, 1, 3, heartbeat=True)
    assert sent.messages[-1]["entries"] == [], "one batch in flight while probing"
    assert replication.acknowledged(b, answer(2, 21, success=True))
    assert (progress.probing, progress.match_index, progress.next_index) == (False, 20, 21)
    assert not replication.acknowledged(b, answer(1, 2, success=False))
    assert progress.next_index == 21


def test_an_answer_to_an_old_question_does_not_raise_a_candidate_once_a_leader_was_heard() -> None:
    world = World("abc", seed=1).start()
    world.elect("a")
    world.run(0.5)
    b = world.nodes["b"]
    core = raft_probe.core(b.node)
    number = core.prevote.ask()
    world.run(0.2)
    grant = {"type": "pre_vote_answer", "term": b.node.term, "number": number, "granted": True}
    core.receive(PeerNode("c"), grant)
    assert core.election_deadline != NEVER
    world.run(1.0)
    assert world.leaders[0].name == "a"


@pytest.mark.parametrize("names", ["a", "abc"])
def test_nothing_is_applied_or_reported_before_it_is_on_the_own_disk(names: str) -> None:
    world = World(names, seed=2)
    for node in world.nodes.values():

        def durable(payload: bytes = b"", node: Any = node) -> None:
            assert node.journal.log.synced_index >= node.node.commit_index

        node.apply_hook = durable
    world.start()
    for node in world.nodes.values():

        def before_sync(node: Any = node) -> None:
            assert node.journal.log.synced_index >= node.node.commit_index

        raft_probe.on_before_sync(node.node, before_sync)
    leader = world.elect()
    world.commit(leader, 20, size=100)
    world.run(0.5)
    # A node that was away gets entries and their commit in one frame.
    away = next((node for node in world.nodes.values() if node is not leader), None)
    if away is not None:
        away.kill()
        world.commit(leader, 20, size=100)
        away.start()
        world.run(1.0)
        assert len(away.applied) == 40
    assert all(node.stopped is None for node in world.nodes.values())


def test_a_message_for_another_leadership_is_refused() -> None:
    submissions = Submissions(config(), RaftCounters())
    told: list[tuple[int, Outcome]] = []
    for term in (1, 2):
        submissions.add(
            Submission(
                command=b"\x10x",
                done=lambda outcome, index, term=term: told.append((term, outcome)),  # type: ignore[misc]  # bound above
                deadline=10.0,
                term=term,
            ),
            accepted=True,
        )
    assert submissions.take(term=2, index=7, bytes_max=100) == ([(b"\x10x", 7, 2)], 2)
    assert told == [(1, Outcome.NOT_LEADER)]
    assert submissions.queued_bytes == 0


def test_a_run_of_entries_is_passed_over_only_for_a_newest_of_the_own_term() -> None:
    """Entries of an earlier term that a majority has are not committed for that (Raft, 5.4.2)."""
    world = World("abc", seed=3).start()
    core = raft_probe.core(world.elect().node)
    world.run(0.5)
    committed = core.commit_index
    term, last = core.term, committed + 5
    core.journal.log.extend([(b"\x10x", index, term) for index in range(committed + 1, last + 1)])
    first, second = core.match_index
    core.match_index.update({first: last - 1, second: committed})
    core.term = term + 1
    core.pass_over_committed(last)
    assert core.commit_index == committed
    core.term = term
    core.pass_over_committed(committed)
    assert core.commit_index == committed
    core.pass_over_committed(last)
    assert core.commit_index == last - 2


def test_entries_of_an_earlier_leadership_have_an_outcome_too() -> None:
    """At one index there may wait a submit of each leadership: what is applied there decides."""
    submissions = Submissions(config(), RaftCounters())
    told: list[tuple[str, Outcome, int]] = []

    def submit(name: str, term: int, deadline: float) -> None:
        def done(outcome: Outcome, index: int) -> None:
            told.append((name, outcome, index))

        submissions.add(Submission(b"\x10x", done, deadline, term), accepted=True)

    for place, name in enumerate("abc"):
        submit(name, 1, 10.0 + place)
    submissions.take(term=1, index=5, bytes_max=100)
    submissions.refuse_queued()
    submit("d", 3, 20.0)
    assert submissions.take(term=3, index=6, bytes_max=100)[0] == [(b"\x10x", 6, 3)]
    assert submissions.awaited
    submissions.applied(5, 1)
    submissions.applied(6, 3)
    assert told == [
        ("a", Outcome.COMMITTED, 5),
        ("b", Outcome.DISCARDED, 6),
        ("d", Outcome.COMMITTED, 6),
    ]
    submissions.expire(11.9)
    assert len(told) == 3
    submissions.expire(12.0)
    assert told[3:] == [("c", Outcome.UNKNOWN, 7)]
    assert not submissions.awaited


def identity(name: str, secret: bytes = b"secret") -> Identity:
    return Identity(name=name, cluster_id=CLUSTER, secret=secret, incarnation=os.urandom(16))


def test_a_listener_has_to_prove_itself_too() -> None:
    entropy = random.Random(1).randbytes
    dialer = DialerSide(identity("b"), entropy, "a")
    listener = ListenerSide(identity("a"), entropy, frozenset("b"))
    challenge, _ = listener.received(dialer.hello())
    assert challenge is not None
    proof, _ = dialer.received(challenge)
    assert proof is not None
    for forged in (bytes(32), proof["proof"]):
        with pytest.raises(PeerRefused):
            dialer.received({"type": "welcome", "proof": forged})
    welcome, proven = listener.received(proof)
    assert welcome is not None
    assert proven
    assert dialer.received(welcome) == (None, True)
    assert (dialer.peer, listener.peer) == ("a", "b")


def test_a_handshake_out_of_turn_is_refused() -> None:
    entropy = random.Random(2).randbytes
    dialer = DialerSide(identity("b"), entropy, "a")
    listener = ListenerSide(identity("a"), entropy, frozenset("b"))
    with pytest.raises(PeerRefused):
        dialer.received({"type": "welcome", "proof": bytes(32)})
    challenge, _ = listener.received(dialer.hello())
    assert challenge is not None
    with pytest.raises(PeerRefused):
        listener.received(dialer.hello())
    dialer.received(challenge)
    with pytest.raises(PeerRefused):
        dialer.received(challenge)
