"""Rules of section 8, and of the requests about queues in section 9."""

from __future__ import annotations

import os

from tests.conformance.peer import (
    DECLARE,
    FIND,
    MESSAGE_ACTION,
    MOVE,
    NOTICE,
    NOTICE_ACK,
    PAGE,
    PAGED,
    PEEK,
    PEEKED,
    PIN,
    PIN_QUERY,
    QUEUE_ACTION,
    QUEUE_QUERY,
    UNPIN,
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
    found = peer.ok(DECLARE, name, {"lock_ms": 20_000})
    expect(found["created"] is False, f"the same again: {found}")
    code, _, retryable, detail = peer.refused(DECLARE, name, {"lock_ms": 21_000})
    expect((code, retryable) == ("queue_exists", False), f"another spec: {code}")
    expect(detail == {"differences": {"lock_ms": [20_000, 21_000]}}, f"the detail: {detail}")
    code = peer.refused(DECLARE, f"{name}.x", {"no_such_option": 1})[0]
    expect(code == "invalid_argument", f"an unknown option: {code}")
    peer.ok(QUEUE_ACTION, name, "delete")
    anew = peer.ok(DECLARE, name, {"lock_ms": 20_000})
    expect(anew["created"] is True, f"a new one: {anew}")
    expect(anew["queue"] > found["queue"], f"another number: {found}, {anew}")


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


@rule(9, "Find shows where a message stands, by id, by key, or page by page")
def find(case: Case) -> None:
    peer = case.open()
    name = case.queue(peer)
    peer.stored(name, [b"a", b"b", b"c"])
    peer.subscribe(name, 1)
    peer.receive()
    answer = peer.ask(FIND, name, None, None, None, 0, 2)
    expect(answer.kind == PEEKED, f"answered by {answer.kind} {answer.fields}")
    places, after = answer.fields[5], answer.fields[6]
    expect([one["place"] for one in places] == ["locked", "ready"], f"places {places}")
    expect(after > 0, "there is one more")
    answer = peer.ask(FIND, name, None, None, None, after, 2)
    expect(answer.fields[1] == 1, f"the last page has {answer.fields[1]}")
    expect(answer.fields[6:] in ([], [0]), "it was the last page")
    code = peer.refused(FIND, name, "nonsense")[0]
    expect(code == "invalid_argument", f"what is no id: {code}")


@rule(9, "MessageAction takes a lock back, and its holder has a notice of kind 4")
def message_action(case: Case) -> None:
    peer = case.open()
    name = case.queue(peer)
    peer.stored(name, [b"a"])
    consumer = peer.subscribe(name, 1)
    (held,) = peer.receive()
    run = peer.ask(FIND, name).fields[3][0]
    message_id = f"{run[1]}.{run[2]}.{run[3]}"
    code = peer.refused(MESSAGE_ACTION, name, message_id, "explode")[0]
    expect(code == "invalid_argument", f"an unknown action: {code}")
    code = peer.refused(MESSAGE_ACTION, name, message_id, "delete", "1-1-1-1")[0]
    expect(code == "message_not_found", f"another version: {code}")
    answer = peer.ok(MESSAGE_ACTION, name, message_id, "unlock", None, None, 60_000)
    expect(answer == {"id": message_id, "was": "locked"}, f"answered {answer}")
    notice = peer.take(lambda frame: frame.kind == NOTICE, "Notice").fields
    expect(notice[1:4] == [4, consumer, [[held.token, held.token]]], f"the notice: {notice}")
    peer.ok(NOTICE_ACK, notice[0])
    answer = peer.ok(MESSAGE_ACTION, name, message_id, "delete")
    expect(answer == {"id": message_id, "was": "delayed"}, f"answered {answer}")
    code = peer.refused(MESSAGE_ACTION, name, message_id, "delete")[0]
    expect(code == "message_not_found", f"once more: {code}")


@rule(9, "Pin keeps the state as it is, and pages of it show what has gone since")
def pinned_view(case: Case) -> None:
    peer = case.open()
    name = case.queue(peer)
    peer.stored(name, [b"a", b"b", b"c"])
    consumer = peer.subscribe(name, 1)
    (held,) = peer.receive()
    pin = peer.ok(PIN, peer.ok(QUEUE_QUERY, None, "index")["index"])
    expect(pin["index"] > 0, f"pinned {pin}")
    peer.ok(QUEUE_ACTION, name, "purge")
    answer = peer.ask(PAGE, pin["pin"], name, 0, 2**63 - 1, 2)
    expect(answer.kind == PAGED, f"answered by {answer.kind} {answer.fields}")
    spots, after = answer.fields[5], answer.fields[6]
    expect([one[2] for one in spots] == [1, 0], f"locked, then ready: {spots}")
    expect(spots[0][3:5] == [consumer, held.token], f"the holder: {spots[0]}")
    expect(bytes(answer.raw[-2:]) == b"ab", f"the bodies: {bytes(answer.raw)!r}")
    answer = peer.ask(PAGE, pin["pin"], name, after, 2**63 - 1, 2)
    expect(answer.fields[1] == 1, f"the last page has {answer.fields[1]}")
    expect(answer.fields[6:] in ([], [0]), "it was the last page")
    listed = peer.ok(PIN_QUERY, pin["pin"], "ranges", name, 0, 4)
    expect(listed["messages"] == 3, f"the ranges: {listed}")
    code = peer.refused(PAGE, pin["pin"], name, 0, 2**63 - 1, 2, "lost")[0]
    expect(code == "invalid_argument", f"an unknown state: {code}")
    peer.ok(UNPIN, pin["pin"])
    code = peer.refused(PAGE, pin["pin"], name)[0]
    expect(code == "pin_gone", f"after its end: {code}")
