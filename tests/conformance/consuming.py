"""Rules of sections 5 to 7: deliveries, settlements, renewals, notices, resume."""

from __future__ import annotations

from tests.conformance.peer import (
    ACK,
    ALIVE,
    CANCEL,
    CLOSE,
    CREDIT,
    GET,
    GOT,
    NACK,
    NOTICE,
    NOTICE_ACK,
    OK,
    PING,
    QUEUE_ACTION,
    QUEUE_QUERY,
    RELEASE,
    RENEW,
    RENEWED,
    RESUMED,
    SETTLE,
    SUBSCRIBE,
    TERMINATE,
    Peer,
    expect,
)
from tests.conformance.suite import Case, rule

STATUS_OK, ALREADY, LOST, DEAD, UNKNOWN = range(5)
MESSAGE_TIMEOUT, CONSUMER_REMOVED = 0, 3
_NO_TEXTS = (0, None, None, None, None, None, None, False)
"""Between the tokens and the handles of a Settle."""

PULL = (None, None, 0, True, True)


def filled(case: Case, count: int, **spec: object) -> tuple[Peer, str]:
    """Open a session and a queue with so many messages."""
    peer = case.open()
    queue = case.queue(peer, **spec)
    peer.stored(queue, [b"%d" % number for number in range(count)])
    return peer, queue


@rule(5, "deliveries come until prefetch messages are locked, and go on with each settled one")
def prefetch(case: Case) -> None:
    peer, queue = filled(case, 5)
    consumer = peer.subscribe(queue, 2)
    held = peer.receive(2)
    peer.barrier()
    expect(not peer.messages, "more than the prefetch")
    expect([one.token for one in held] == [1, 2], f"tokens {held}")
    expect(peer.settle(consumer, ACK, 1, 1) == [STATUS_OK], "an ack of what is held")
    expect(peer.receive()[0].body == b"2", "the next message")


@rule(5, "subscribing again with the same tag gives the same number, another tag another one")
def tags(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer)
    first = peer.subscribe(queue, tag="a")
    expect(peer.subscribe(queue, tag="a") == first, "another number")
    expect(peer.subscribe(queue, tag="b") != first, "the same number for another tag")


@rule(5, "Credit sets the credit of a pulling consumer; it does not add")
def credit_sets(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer)
    answer = peer.ask(SUBSCRIBE, queue, "t", 10, *PULL)
    consumer = answer.fields[0]
    for credit in (2, 3):
        left = peer.ok(CREDIT, consumer, credit)["left"]
        expect(left == credit, f"set to {credit}, left {left}")
    peer.stored(queue, [b"x"] * 5)
    peer.receive(3)
    peer.barrier()
    expect(not peer.messages, "more than the credit")
    expect(peer.ok(CREDIT, consumer, 10, True)["left"] == 0, "a drain leaves nothing")
    expect(len(peer.receive(2)) == 2, "what was ready")


@rule(5, "Get brings its messages before Got, which names them")
def get(case: Case) -> None:
    peer, queue = filled(case, 2)
    answer = peer.ask(GET, queue, 10)
    expect(answer.kind == GOT, f"answered by {answer.kind} {answer.fields}")
    consumer, first, count = answer.fields
    held = peer.messages
    expect([one.body for one in held] == [b"0", b"1"], f"before Got came {held}")
    expect((held[0].consumer, held[0].token, len(held)) == (consumer, first, count), f"{held}")
    expect(peer.ask(GET, queue, 10).fields[2] == 0, "an empty queue")
    peer.settle(consumer, ACK, first, first + 1)


@rule(5, "Cancel gives unopened tokens back uncounted; the others stay locked")
def cancel(case: Case) -> None:
    peer, queue = filled(case, 3)
    consumer = peer.subscribe(queue)
    peer.receive(3)
    peer.ok(CANCEL, consumer, [[2, 3]])
    other = peer.subscribe(queue, tag="other")
    got = peer.receive(2)
    expect([one.body for one in got] == [b"1", b"2"], f"to the other came {got}")
    expect(all(one.failures == 0 for one in got), f"counted: {got}")
    expect(peer.settle(consumer, ACK, 1, 1) == [STATUS_OK], "what it finished")
    peer.settle(other, ACK, got[0].token, got[-1].token)


@rule(6, "a receipt says what became of each token, and an ack may be sent again")
def receipts(case: Case) -> None:
    peer, queue = filled(case, 2)
    consumer = peer.subscribe(queue)
    peer.receive(2)
    found = peer.settle(consumer, ACK, 1, 3)
    expect(found == [STATUS_OK, STATUS_OK, LOST], f"two held, one that never came: {found}")
    again = peer.settle(consumer, ACK, 1, 2)
    expect(again == [ALREADY, ALREADY], f"sent again: {again}")


@rule(6, "a consumer that is not there has status 4")
def unknown_consumer(case: Case) -> None:
    found = case.open().settle((1 << 53) - 1, ACK, 1, 1)
    expect(found == [UNKNOWN], f"answered {found}")


@rule(6, "another session of the same user settles with handles; it proves nothing of the consumer")
def settled_by_another_session(case: Case) -> None:
    peer, queue = filled(case, 1)
    consumer = peer.subscribe(queue)
    (held,) = peer.receive()
    other = case.open()
    wrong = [peer.handle(consumer, held.token + 1)]
    code = other.refused(SETTLE, consumer, ACK, [[1, 1]], *_NO_TEXTS, wrong)[0]
    expect(code == "permission_denied", f"the handle of another message: {code}")
    expect(not peer.target.user or _bare(other, consumer) == "permission_denied", "a bare token")
    right = [peer.handle(consumer, held.token)]
    found = other.settle(consumer, ACK, held.token, held.token, *_NO_TEXTS, right)
    expect(found == [STATUS_OK], f"with the handle of the message: {found}")
    code = other.refused(ALIVE, consumer)[0]
    expect(code == "unknown_consumer", f"Alive for another's consumer: {code}")


def _bare(other: Peer, consumer: int) -> str:
    return str(other.ask(SETTLE, consumer, ACK, [[1, 1]]).fields[0])


@rule(5, "deliveries and notices carry the label of their consumer")
def label(case: Case) -> None:
    peer, queue = filled(case, 1)
    peer.subscribe(queue, 10, "t", *PULL[:3], True, False, None, None, None, None, "mine")
    (held,) = peer.receive()
    expect(held.label == "mine", f"a delivery with the label {held.label!r}")
    peer.ok(QUEUE_ACTION, queue, "delete")
    notice = peer.take(lambda frame: frame.kind == NOTICE, "Notice").fields
    expect(notice[5:] == ["mine"], f"the notice: {notice}")


@rule(6, "nack counts, release does not, and avoids the consumer that released")
def nack_and_release(case: Case) -> None:
    peer, queue = filled(case, 1)
    first = peer.subscribe(queue, tag="first")
    peer.receive()
    peer.settle(first, NACK, 1, 1, 0, 0)
    (again,) = peer.receive()
    expect((again.attempt, again.failures) == (2, 1), f"after a nack: {again}")
    second = peer.subscribe(queue, tag="second")
    peer.settle(first, RELEASE, again.token, again.token, 0, 0)
    (other,) = peer.receive()
    expect(other.consumer == second, "released to the one that had it, while another was free")
    expect((other.attempt, other.failures) == (3, 1), f"after a release: {other}")


@rule(6, "terminate needs a dead-letter queue, and brings the reason there")
def terminate(case: Case) -> None:
    peer, queue = filled(case, 1)
    consumer = peer.subscribe(queue)
    peer.receive()
    code = peer.refused(SETTLE, consumer, TERMINATE, [[1, 1]])[0]
    expect(code == "no_dead_letter_queue", f"answered {code}")
    expect(peer.settle(consumer, ACK, 1, 1) == [STATUS_OK], "it stays locked")
    dead = case.queue(peer)
    queue = case.queue(peer, dead_letter=dead)
    peer.stored(queue, [b"bad"])
    consumer = peer.subscribe(queue)
    peer.receive()
    texts = (0, None, "broken", "no such order")
    expect(peer.settle(consumer, TERMINATE, 1, 1, *texts) == [STATUS_OK], "terminated")
    peer.subscribe(dead)
    (letter,) = peer.receive()
    record = letter.dead_letter or {}
    expect(record.get("reason") == "terminated", f"the record: {record}")
    expect((record.get("detail"), record.get("source")) == ("broken", queue), f"{record}")


@rule(7, "Renew answers with the time that each token has")
def renew(case: Case) -> None:
    peer, queue = filled(case, 1, lock_ms=5_000)
    consumer = peer.subscribe(queue)
    peer.receive()
    answer = peer.ask(RENEW, [[consumer, [[1, 1]]]])
    expect(answer.kind == RENEWED, f"answered by {answer.kind} {answer.fields}")
    ((number, renewed, lost),) = answer.fields[0]
    expect(number == consumer and lost == [], f"answered {answer.fields}")
    expect([one[:2] for one in renewed] == [[1, 1]], f"renewed {renewed}")
    expect(4_000 < renewed[0][2] <= 5_000, f"{renewed[0][2]} ms of a lock of 5 s")


@rule(7, "a resume repeats what is locked under its tokens, and ends that with Resumed")
def resume(case: Case) -> None:
    peer, queue = filled(case, 3)
    consumer = peer.subscribe(queue)
    peer.receive(3)
    peer.settle(consumer, ACK, 2, 2)
    peer.close()
    again = case.again(peer)
    expect(again.welcome[4] == 1, "the session was not resumed")
    listed = [one[:3] for one in again.welcome[9]]
    expect(listed == [[consumer, "t", queue]], f"Welcome.consumers: {listed}")
    again.take(lambda frame: frame.kind == RESUMED, "Resumed")
    held = [(one.token, one.body, one.repeat) for one in again.messages]
    expect(held == [(1, b"0", True), (3, b"2", True)], f"before Resumed came {held}")
    expect(again.settle(consumer, ACK, 1, 3) == [STATUS_OK, ALREADY, STATUS_OK], "settled")


@rule(7, "Resumed comes at once where nothing is locked, and never to a new session")
def resume_of_nothing_held(case: Case) -> None:
    peer = case.open()
    peer.barrier()
    expect(RESUMED not in peer.arrived, "Resumed in a session that is new")
    again = case.again(peer)
    again.take(lambda frame: frame.kind == RESUMED, "Resumed")


@rule(7, "a lock that runs out is noticed, and lost to a renewal")
def message_timeout(case: Case) -> None:
    peer, queue = filled(case, 1, lock_ms=1_000)
    consumer = peer.subscribe(queue)
    peer.receive()
    notice = peer.take(lambda frame: frame.kind == NOTICE, "Notice").fields
    expect(notice[1:4] == [MESSAGE_TIMEOUT, consumer, [[1, 1]]], f"the notice: {notice}")
    expect(
        peer.settle(consumer, ACK, 1, 1, 0, None, None, None, None, None, None, True)
        == [STATUS_OK],
        "no other consumer got it, so a late ack is carried out",
    )
    answer = peer.ask(RENEW, [[consumer, [[1, 1]]]])
    expect(answer.fields[0] == [[consumer, [], [[1, 1]]]], f"renewed: {answer}")
    peer.ok(NOTICE_ACK, notice[0])
    peer.ok(ALIVE, consumer)


@rule(7, "the consumers of a queue that is deleted get a notice")
def consumer_removed(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer)
    consumer = peer.subscribe(queue)
    peer.ok(QUEUE_ACTION, queue, "delete")
    notice = peer.take(lambda frame: frame.kind == NOTICE, "Notice").fields
    expect(notice[:3] == [0, CONSUMER_REMOVED, consumer], f"the notice: {notice}")


@rule(7, "what Close returns is not counted")
def close_returns_uncounted(case: Case) -> None:
    peer, queue = filled(case, 1)
    peer.subscribe(queue)
    peer.receive()
    expect(peer.ask(CLOSE).kind == OK, "Close is answered by Ok")
    other = case.open()
    other.subscribe(queue)
    (message,) = other.receive()
    expect((message.attempt, message.failures) == (2, 0), f"delivered as {message}")
    expect(other.ask(PING).correlation, "still open")
    expect(other.ok(QUEUE_QUERY, queue, "show")["locked"] == 1, "locked once")
