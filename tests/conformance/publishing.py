"""Rules of section 4: numbers, duplicates, gaps, refusals, ids."""

from __future__ import annotations

import os
import struct

from tests.conformance.peer import CONFIRMS, ERROR, OPEN_PRODUCER, Frame, Peer, expect
from tests.conformance.suite import Case, rule

FORGET_PRODUCER = 51


def outcome(peer: Peer, correlation: int) -> str:
    """Return the code that a publish was refused with, by whichever of the two ways."""

    def mine(frame: Frame) -> bool:
        if frame.kind == ERROR:
            return frame.correlation == correlation
        return frame.kind == CONFIRMS and any(one[0] == correlation for one in frame.fields[0])

    frame = peer.take(mine, f"outcome of publish {correlation}")
    if frame.kind == ERROR:
        return str(frame.fields[0])
    item = next(one for one in frame.fields[0] if one[0] == correlation)
    return str(item[5][0]) if len(item) > 5 and item[5] else "confirmed"


@rule(4, "a publish is confirmed with the numbers that its ids are made of")
def publish_is_confirmed(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer)
    item = peer.stored(queue, [b"a", b"b"])
    expect(item[1] > 0 and item[2] > 0, f"queue and producer number: {item}")
    expect(item[3:5] == [0, 2], f"duplicates and stored: {item}")
    peer.subscribe(queue)
    ids = [message.id for message in peer.receive(2)]
    expect(ids == [(item[1], item[2], 1), (item[1], item[2], 2)], f"ids {ids} of {item}")


@rule(4, "a number that was stored is a duplicate: confirmed, and not stored again")
def duplicates(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer)
    peer.stored(queue, [b"a", b"b"])
    item = peer.confirm(peer.publish(queue, [b"a", b"b", b"c"], 1, 0))
    expect(item[3:5] == [2, 1], f"duplicates and stored: {item}")
    peer.subscribe(queue)
    bodies = [message.body for message in peer.receive(3)]
    peer.barrier()
    expect((bodies, peer.messages) == ([b"a", b"b", b"c"], []), f"delivered {bodies}")


@rule(4, "holes are allowed; a previous above the last stored number is a gap")
def holes_and_gaps(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer)
    item = peer.confirm(peer.publish(queue, [b"a"], 10, 0))
    expect(item[3:6] == [0, 1, None], f"a first number of 10: {item}")
    item = peer.confirm(peer.publish(queue, [b"b"], 13, 12))
    expect(item[3:5] == [0, 0] and item[5][0] == "gap", f"previous 12 after 10: {item}")
    expect(item[5][3] == {"expected": 10}, f"the detail of the gap: {item}")


@rule(4, "behind a refused frame all are gaps, until one comes with the last number stored")
def refused_frame_in_a_pipeline(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer, max_length=3)
    numbers = (1, 3, 5)
    asked = [peer.publish(queue, [b"x", b"y"], number, number - 1) for number in numbers]
    first, second, third = [peer.confirm(correlation) for correlation in asked]
    expect(first[3:6] == [0, 2, None], f"the first: {first}")
    expect(second[5] and second[5][0] == "queue_full", f"the second: {second}")
    last = 2 + second[4]
    expect(third[5] and third[5][0] == "gap", f"the third: {third}")
    expect(third[5][3] == {"expected": last}, f"the last number is {last}: {third}")
    consumer = peer.subscribe(queue)
    held = peer.receive(last)
    peer.settle(consumer, 0, held[0].token, held[-1].token)
    again = peer.confirm(peer.publish(queue, [b"x", b"y"], 5, last))
    expect(again[3:6] == [0, 2, None], f"the third again, previous {last}: {again}")


@rule(4, "a publish fails by an Error or in its item, and the stream goes on")
def ways_to_fail(case: Case) -> None:
    peer = case.open()
    missing = outcome(peer, peer.publish(f"conformance.{os.urandom(6).hex()}", [b"x"], 1, 0))
    expect(missing == "queue_not_found", f"a queue that is not there: {missing}")
    queue = case.queue(peer)
    unknown = outcome(peer, peer.publish(queue, [b"x"], 1, 0, producer=1 << 60))
    expect(unknown == "unknown_producer", f"a producer that is not there: {unknown}")
    wrong = outcome(peer, peer.publish(queue, [b"x"], 1, 0, columns=[(5, b"\x63")]))
    expect(wrong == "invalid_argument", f"a priority of 99: {wrong}")
    tag = outcome(peer, peer.publish(queue, [b"x"], 1, 0, columns=[(99, b"")]))
    expect(tag == "unsupported", f"an unknown column: {tag}")
    skipped = outcome(peer, peer.publish(queue, [b"x"], 1, 0, columns=[(32768 + 99, b"?")]))
    expect(skipped == "confirmed", f"an unknown column that may be skipped: {skipped}")


@rule(4, "each queue of a publish to several is answered as if it had come alone")
def across(case: Case) -> None:
    peer = case.open()
    full, roomy = case.queue(peer, max_length=1), case.queue(peer)
    places = ((full, 0, 2), (roomy, 0, 1), (full, 2, 1), (roomy, 1, 1))
    asked = peer.publish_across([(queue, previous, [b"x"] * n) for queue, previous, n in places])
    items = [peer.confirm(correlation) for correlation in asked]
    found = [(item[4], item[5] and item[5][0]) for item in items]
    wanted = [(1, "queue_full"), (1, None), (0, "gap"), (1, None)]
    expect(found == wanted, f"stored, and the error, of each place: {found}")
    peer.subscribe(roomy)
    expect([message.id[2] for message in peer.receive(2)] == [1, 2], "the ids of one of them")


@rule(4, "a queue that is missing refuses no other queue of the frame")
def across_missing(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer)
    asked = peer.publish_across([("there-is-none", 0, [b"x"]), (queue, 0, [b"y"])])
    missing, stored = [peer.confirm(correlation) for correlation in asked]
    expect(missing[1:5] == [0] * 4, f"an item of zeros: {missing}")
    expect(missing[5][0] == "queue_not_found", f"its error: {missing}")
    expect(stored[3:6] == [0, 1, None], f"the other: {stored}")


@rule(4, "a named producer goes on where it stopped, in another session too")
def named_producer(case: Case) -> None:
    peer, name = case.open(), f"conformance.{os.urandom(6).hex()}"
    queue = case.queue(peer)
    number = peer.ok(OPEN_PRODUCER, name)["producer"]
    peer.stored(queue, [b"a", b"b"], producer=number)
    other = case.open()
    opened = other.ok(OPEN_PRODUCER, name)
    expect(opened["producer"] == number, f"another number: {opened}")
    expect(opened["last"].get(queue) == 2, f"the last number stored: {opened}")
    item = other.confirm(other.publish(queue, [b"b"], 2, 1, producer=number))
    expect(item[3:5] == [1, 0], f"a number that the other session had stored: {item}")
    other.ok(FORGET_PRODUCER, name)


@rule(4, "a dedup id that is remembered is confirmed as the message that was stored")
def dedup_ids(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer, dedup_window_ms=60_000)
    column = [(8, struct.pack("<I", 2)), (9, b"\xff\xfe")]
    first = peer.confirm(peer.publish(queue, [b"a"], 1, 0, columns=column))
    again = peer.confirm(peer.publish(queue, [b"a"], 2, 1, columns=column))
    expect(again[3] + again[4] == 1, f"not confirmed: {again}")
    expect(again[6] == [[0, 1, first[2], 1]], f"repeats of {first}: {again}")


@rule(10, "keys and bodies are bytes, headers are text")
def bytes_and_text(case: Case) -> None:
    peer = case.open()
    queue = case.queue(peer)
    body, key = bytes(range(256)), b"\xff\xfe"
    header = bytes.fromhex("010061 0200000062 63")
    columns = [(1, struct.pack("<I", 2)), (2, key)]
    columns += [(3, struct.pack("<I", len(header))), (4, header)]
    peer.confirm(peer.publish(queue, [body], 1, 0, columns=columns))
    peer.subscribe(queue)
    (message,) = peer.receive()
    expect((message.body, message.key) == (body, key), f"came as {message}")
    expect(message.headers == header, f"headers came as {message.headers!r}")
    broken = bytes.fromhex("0100ff 0100000062")
    columns = [(3, struct.pack("<I", len(broken))), (4, broken)]
    code = outcome(peer, peer.publish(queue, [b""], 2, 1, columns=columns))
    expect(code == "invalid_argument", f"a header name ff was answered {code}")
