"""Rules of section 8, and of the requests about queues in section 9."""

from __future__ import annotations

import os

from tests.conformance.peer import (
    DECLARE,
    MOVE,
    PEEK,
    PEEKED,
    QUEUE_ACTION,
    QUEUE_QUERY,
    UPDATE,
    Frame,
    delivered,
    expect,
)
from tests.conformance.suite import Case, rule


@rule(8, "Declare creates or finds; another spec is answered with the differences")
def declare(case: Case) -> None:
    peer = case.open()
    name = case.queue(peer, lock_ms=20_000)
    expect(peer.ok(DECLARE, name, {"lock_ms": 20_000}) == {"created": False}, "the same again")
    code, _, retryable, detail = peer.refused(DECLARE, name, {"lock_ms": 21_000})
    expect((code, retryable) == ("queue_exists", False), f"another spec: {code}")
    expect(detail == {"differences": {"lock_ms": [20_000, 21_000]}}, f"the detail: {detail}")
    code = peer.refused(DECLARE, f"{name}.x", {"no_such_option": 1})[0]
    expect(code == "invalid_argument", f"an unknown option: {code}")


@rule(8, "Update changes a live queue, and nil restores a default")
def update(case: Case) -> None:
    peer = case.open()
    name = case.queue(peer, max_length=5)
    peer.ok(UPDATE, name, {"max_length": None, "lock_ms": 21_000})
    spec = peer.ok(QUEUE_QUERY, name, "show")["spec"]
    expect(spec.get("lock_ms") == 21_000, f"the spec: {spec}")
    expect(spec.get("max_length") is None, f"the spec: {spec}")


@rule(8, "list and show count messages; what is not there is queue_not_found")
def show_and_list(case: Case) -> None:
    peer = case.open()
    name = case.queue(peer)
    peer.stored(name, [b"a", b"bc"])
    shown = peer.ok(QUEUE_QUERY, name, "show")
    found = [shown[key] for key in ("name", "ready", "locked", "delayed", "paused")]
    expect(found == [name, 2, 0, 0, False], f"shown {shown}")
    listed = [one["name"] for one in peer.ok(QUEUE_QUERY, None, "list", 10_000)]
    expect(name in listed, "the list lacks the queue")
    missing = peer.refused(QUEUE_QUERY, f"conformance.{os.urandom(6).hex()}", "show")[0]
    expect(missing == "queue_not_found", f"a queue that is not there: {missing}")


@rule(8, "pause stops deliveries until resume; purge counts what it took")
def actions(case: Case) -> None:
    peer = case.open()
    name = case.queue(peer)
    peer.ok(QUEUE_ACTION, name, "pause")
    peer.subscribe(name, 1)
    peer.stored(name, [b"a", b"b", b"c"])
    peer.barrier()
    expect(not peer.messages, "a paused queue delivered")
    peer.ok(QUEUE_ACTION, name, "resume")
    expect(peer.receive()[0].body == b"a", "the first message")
    purged = peer.ok(QUEUE_ACTION, name, "purge")
    expect(purged == {"messages": 2}, f"purged {purged}")


@rule(9, "Peek shows what is ready and locks nothing")
def peek(case: Case) -> None:
    peer = case.open()
    name = case.queue(peer)
    peer.stored(name, [b"a", b"b"])
    answer = peer.ask(PEEK, name, 10)
    expect(answer.kind == PEEKED, f"answered by {answer.kind} {answer.fields}")
    queue, count, columns, runs, *more = answer.fields
    shown = delivered(
        Frame(0, 0, [0, queue, 0, count, 0, columns, runs, more[0] if more else []], answer.raw)
    )
    expect([one.body for one in shown] == [b"a", b"b"], f"shown {shown}")
    expect(peer.ok(QUEUE_QUERY, name, "show")["locked"] == 0, "something is locked")


@rule(9, "Move takes what is ready to another queue")
def move(case: Case) -> None:
    peer = case.open()
    source, target = case.queue(peer), case.queue(peer)
    peer.stored(source, [b"a", b"b", b"c"])
    expect(peer.ok(MOVE, source, target, 2) == {"messages": 2}, "moved another number")
    found = [peer.ok(QUEUE_QUERY, name, "show")["ready"] for name in (source, target)]
    expect(found == [1, 2], f"left and arrived: {found}")
