"""RaftNode for its owner: submits and their outcomes, the order of a turn, limits, status."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from node.peers.message import PeerNode
from node.raft import limits
from node.raft.config import EntryTooLarge, Outcome
from node.raft.errors import RaftStopped
from tests.support import raft_probe
from tests.support.raft_network import Frame
from tests.support.raft_world import World


def test_entries_are_applied_everywhere_in_order_and_only_once() -> None:
    world = World("abc", seed=1).start()
    leader = world.elect()
    found = world.commit(leader, 100, size=50)
    world.run(0.5)
    for node in world.nodes.values():
        assert [payload for _, _, payload in node.applied] == [s.payload for s in found]
    assert [s.outcomes[0][1] for s in found] == [index for index, _, _ in leader.applied]


def test_parts_are_joined_and_read_back_without_the_type_byte() -> None:
    world = World("abc", seed=2).start()
    leader = world.elect()
    done: list[tuple[Outcome, int]] = []
    parts: list[bytes | bytearray | memoryview] = [
        b"one ",
        bytearray(b"two "),
        memoryview(b"three"),
    ]
    leader.node.submit(parts, lambda outcome, index: done.append((outcome, index)))
    world.run_until(lambda: bool(done))
    assert leader.applied[0][2] == b"one two three"
    assert bytes(leader.node.read(done[0][1])) == b"one two three"


def test_the_last_payload_that_is_not_applied_is_found_behind_no_ops() -> None:
    world = World("abc", seed=3).start()
    leader = world.elect("a")
    assert leader.node.last_entry_payload() is None
    world.commit(leader, 1, size=9)
    for name in "ba":
        world.run(0.3)
        world.leaders[0].kill()
        world.elect(name)
        world.start()
    world.run(0.3)
    leader = world.nodes["a"]
    assert leader.node.last_entry_payload() is None, "it is applied"
    leader.kill()
    leader.start()
    leader.node._core.last_applied = 1
    payload = leader.node.last_entry_payload()
    assert payload is not None
    assert bytes(payload) == world.submitted[0].payload


def test_entries_too_large_or_empty_are_refused_before_anything_happens() -> None:
    world = World("abc", seed=4, entry_bytes_max=100).start()
    leader = world.elect()
    with pytest.raises(EntryTooLarge, match="at most 100"):
        leader.node.submit([b"x" * 60, b"x" * 41], lambda *_: pytest.fail("called"))
    with pytest.raises(ValueError, match="at least one byte"):
        leader.node.submit([b"", b""], lambda *_: pytest.fail("called"))
    world.submit(leader, b"x" * 100)
    world.run(0.5)
    assert world.submitted[0].outcomes[0][0] is Outcome.COMMITTED


def test_a_queue_full_of_bytes_refuses() -> None:
    world = World("abc", seed=6, queue_bytes_max=1_000).start()
    leader = world.elect()
    found = [world.submit(leader, world.payload(400)) for _ in range(4)]
    world.run(0.5)
    outcomes = [submitted.outcomes[0][0] for submitted in found]
    assert outcomes == [Outcome.COMMITTED] * 2 + [Outcome.QUEUE_FULL] * 2


def test_uncommitted_entries_are_bounded_and_the_rest_waits_in_the_queue() -> None:
    world = World("abc", seed=7, uncommitted_bytes_max=1_000, submit_seconds=3.0).start()
    leader = world.elect()
    world.run(0.2)
    world.network.intercept = lambda frame: "drop"
    before = leader.node.last_index
    found = [world.submit(leader, world.payload(300)) for _ in range(10)]
    world.run(0.1)
    assert leader.node.last_index == before + 4
    assert leader.node.uncommitted_bytes > 3_000
    world.network.intercept = None
    world.run(1.0)
    assert [s.outcomes[0][0] for s in found] == [Outcome.COMMITTED] * 10
    assert leader.node.uncommitted_bytes == 0


def test_bytes_in_flight_to_a_slow_peer_are_bounded() -> None:
    world = World("abc", seed=8, batch_bytes=1_000, window_bytes=3_000).start()
    leader = world.elect("a")
    world.run(0.3)
    sent = 0

    def watch(frame: Frame) -> str:
        nonlocal sent
        if frame.target == "b":
            sent += sum(len(entry[0]) for entry in frame.message().get("entries", []))
        return "drop" if frame.source == "b" else "pass"

    world.network.intercept = watch
    world.commit(leader, 100, size=200)
    world.run(0.5)
    assert 3_000 <= sent <= 3_000 + 2 * 1_000
    peers = {peer.name: peer for peer in leader.node.status().peers}
    assert peers["b"].in_flight_bytes <= 5_000
    assert peers["b"].lag_entries >= 80
    world.network.intercept = None
    world.run(1.0)
    assert world.converged()


def test_on_role_comes_before_anything_of_the_role_and_its_entry_is_the_first_of_the_term() -> None:
    world = World("abc", seed=9).start()

    def lead(name: str, role: str, term: int) -> None:
        if role == "leader":
            world.submit(name, f"lead {term} {name}".encode())

    for node in world.nodes.values():
        raft_probe.on_role(node.node, partial(lead, node.name))
        world.submit(node, f"too early on {node.name}".encode())
    for _ in range(3):
        leader = world.elect()
        world.commit(leader, 3)
        world.network.isolate(leader.name)
        world.run(2.0)
        world.network.heal()
        world.run(1.0)
    by_term: dict[int, bytes] = {}
    for _, term, payload in world.leaders[0].applied:
        by_term.setdefault(term, payload)
    assert len(by_term) >= 3
    assert all(payload.startswith(b"lead %d" % term) for term, payload in by_term.items())


def test_a_submit_inside_a_callback_is_taken_in_a_later_turn() -> None:
    world = World("a", seed=10).start()
    leader = world.elect()
    left = [5]

    def done(outcome: Outcome, index: int) -> None:
        assert outcome is Outcome.COMMITTED
        if left[0]:
            left[0] -= 1
            leader.node.submit([b"again"], done)

    leader.node.submit([b"first"], done)
    world.run_until(lambda: len(leader.applied) == 6)


def test_a_turn_replicates_then_notifies_the_owner_then_syncs() -> None:
    world = World("abc", seed=11).start()
    leader = world.elect()
    world.run(0.3)
    order: list[str] = []

    def watch(frame: Frame) -> str:
        if frame.source == leader.name and frame.message().get("entries"):
            assert leader.journal is not None
            order.append("sent dirty" if leader.journal.log.dirty else "sent clean")
        return "pass"

    world.network.intercept = watch
    raft_probe.on_before_sync(leader.node, lambda: order.append("before_sync"))
    leader.storage.hook = lambda operation, name: order.append(operation)
    world.submit(leader, b"x")
    world.run(0.0)
    assert order[:4] == ["sent dirty", "sent dirty", "before_sync", "write"]
    assert "sync" in order[4:]


def test_a_commit_is_reported_after_apply_in_the_same_turn() -> None:
    world = World("abc", seed=12).start()
    leader = world.elect()
    seen: list[str] = []
    leader.apply_hook = lambda payload: seen.append("apply")
    raft_probe.on_before_sync(leader.node, lambda: seen.append("turn"))
    leader.node.submit([b"x"], lambda outcome, index: seen.append(outcome.value))
    world.run_until(lambda: "committed" in seen)
    assert seen[-3:] == ["apply", "committed", "turn"]


def test_a_long_log_is_applied_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APPLY_ENTRIES_PER_TURN", 7)
    world = World("a", seed=13).start()
    leader = world.elect()
    world.commit(leader, 50)
    counts: list[int] = []
    leader.kill()
    leader.start()
    raft_probe.on_before_sync(leader.node, lambda: counts.append(len(leader.applied)))
    world.run(1.0)
    assert len(leader.applied) == 50
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert max(steps) <= 7


def test_a_costly_log_is_applied_a_little_at_a_time_and_no_more_is_read() -> None:
    world = World("a", seed=13).start()
    leader = world.elect()
    world.commit(leader, 50)
    leader.kill()
    leader.start()
    core, counts, read, spent = raft_probe.core(leader.node), [0], [0], [0.0]
    clock, entries = core.clock, core.journal.log.entries

    def cost(payload: bytes) -> None:
        spent[0] += 0.006 if len(leader.applied) < 40 else 0.0

    def reading(first: int, max_bytes: int, max_count: int | None = None) -> list[Any]:
        found = entries(first, max_bytes, max_count)
        read.append(len(found))
        return found

    leader.apply_hook = cost
    raft_probe.on_before_sync(leader.node, lambda: counts.append(len(leader.applied)))
    core.clock = lambda: clock() + spent[0]
    core.journal.log.entries = reading  # type: ignore[method-assign]  # counts what is read
    world.run(1.0)
    assert len(leader.applied) == 50
    steps = [after - before for before, after in itertools.pairwise(counts) if after <= 40]
    assert max(steps) == 4, "24 ms, for none is begun after 20"
    assert sum(read[1:]) < 3 * 50, "what there is no time for is read over and over"


def test_a_failed_disk_stops_the_node_and_nothing_is_acknowledged_on_it() -> None:
    world = World("abc", seed=14).start()
    world.expect_stop = True
    leader = world.elect()
    world.run(0.3)

    def broken(operation: str, name: str) -> None:
        raise OSError(5, "Input/output error")

    leader.storage.hook = broken
    submitted = world.submit(leader, b"x")
    world.run(0.2)
    assert leader.stopped is not None
    assert submitted.outcomes[0][0] is Outcome.UNKNOWN
    with pytest.raises(RaftStopped):
        leader.node.turn()
    refused = world.submit(leader, b"y")
    assert refused.outcomes[0][0] is not Outcome.COMMITTED
    assert len(refused.outcomes) == 1


@pytest.mark.parametrize("what", ["_before_sync", "_on_role"])
def test_a_mistake_of_the_owner_stops_the_node_with_its_reason(what: str) -> None:
    world = World("abc", seed=15).start()
    world.expect_stop = True

    def mistake(*_: object) -> None:
        raise LookupError("the owner's mistake")

    node = world.nodes["a"]
    setattr(node.node, what, mistake)
    world.run(2.0)
    assert node.stopped is not None
    assert "LookupError: the owner's mistake" in node.stopped.reason


def test_a_log_that_disagrees_below_the_commit_index_stops_the_node() -> None:
    world = World("abc", seed=16).start()
    world.expect_stop = True
    leader = world.elect("a")
    world.commit(leader, 5)
    world.run(0.3)
    b = world.nodes["b"]
    for previous, term, entries in ((3, 99, []), (2, 1, [(b"\x10other", 3, 100)])):
        message = {
            "type": "append_entries",
            "term": 100,
            "commit_index": 3,
            "prevLogIdx": previous,
            "prevLogTerm": term,
            "round": 1,
            "entries": entries,
        }
        raft_probe.core(b.node).receive(PeerNode("c"), message)
        world.run(0.05)
        assert b.stopped is not None
        assert "parted" in b.stopped.reason
        b.kill()
        b.start()
        world.run(0.3)


async def test_close_answers_everything_and_gives_the_journal_back() -> None:
    world = World("abc", seed=17).start()
    leader = world.elect()
    world.network.intercept = lambda frame: "drop"
    waiting = world.submit(leader, b"in the log")
    world.run(0.01)
    queued = world.submit(leader, b"in the queue")
    await leader.node.close()
    await leader.node.close()
    assert [s.outcomes for s in (waiting, queued)] == [
        [(Outcome.UNKNOWN, leader.node.last_index)],
        [(Outcome.NOT_LEADER, 0)],
    ]
    leader.open_journal(leader.storage).close()
    late = world.submit(leader, b"too late")
    assert late.outcomes == [(Outcome.NOT_LEADER, 0)]


def test_the_status_has_the_figures_that_an_operator_needs() -> None:
    world = World("abc", seed=18).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    world.run(0.3)
    status = leader.node.status()
    assert (status.name, status.role, status.leader) == ("a", "leader", "a")
    assert status.last_index == status.commit_index == status.applied_index == 5
    assert status.lease_seconds > 0
    assert [(p.name, p.connected, p.lag_entries) for p in status.peers] == [
        ("b", True, 0),
        ("c", True, 0),
    ]
    assert status.journal.entries == 5
    follower = world.nodes["b"].node.status()
    assert (follower.role, follower.leader, follower.lease_seconds) == ("follower", "a", 0.0)
