"""Rules of sections 1 to 3: frames, the opening of a connection, requests and heartbeats."""

from __future__ import annotations

import os
import time

from tests.conformance.peer import (
    CLOSE,
    CONTROL,
    DATA,
    DECLARE,
    ERROR,
    OBSERVER,
    OK,
    PING,
    PONG,
    QUEUE_QUERY,
    STATUS,
    WELCOME,
    Peer,
    expect,
    frame_bytes,
)
from tests.conformance.suite import Case, rule

_FRAME_BYTES_MAX = 8 << 20
_LIMITS = (
    "body_bytes",
    "prefetch",
    "in_flight_publishes",
    "requests",
    "request_bytes",
    "heartbeat_ms_min",
    "heartbeat_ms_max",
)


def ends_with(peer: Peer, code: str) -> None:
    """Expect one Error with correlation 0 and this code, and the close."""
    frames = [frame for frame in peer.closed() if frame.kind == ERROR]
    expect(frames, f"closed without Error({code})")
    last = frames[-1]
    expect((last.correlation, last.fields[0]) == (0, code), f"ended with {last}, not {code}")


@rule(1, "a frame may come byte by byte, and several in one piece")
def frames_are_cut_anywhere(case: Case) -> None:
    peer = case.open()
    for byte in frame_bytes(PING, 1):
        peer.send_bytes(bytes([byte]))
    peer.send_bytes(frame_bytes(PING, 2) + frame_bytes(PING, 3))
    for correlation in (1, 2, 3):
        expect(peer.answer(correlation).kind == PONG, "a Ping was not answered by Pong")


@rule(1, "an unknown type is answered unsupported, and the stream goes on")
def unknown_type(case: Case) -> None:
    peer = case.open()
    code = peer.refused(60_000, 1, 2)[0]
    expect(code == "unsupported", f"answered {code}")
    peer.barrier()


@rule(1, "a field that is missing or wrong is named, and the stream goes on")
def bad_fields(case: Case) -> None:
    peer = case.open()
    cases: list[tuple[object, ...]] = [(), ("q",), ("q", 1), (7, {}), ("", {}), (True, {})]
    for fields in cases:
        code, text, *_ = peer.refused(DECLARE, *fields)
        expect(code == "invalid_argument", f"{fields} was answered {code}")
        name = "spec" if fields in (("q",), ("q", 1)) else "queue"
        expect(name in text, f"{fields}: the text does not name {name}: {text}")
    peer.barrier()


@rule(1, "fields beyond those known are ignored")
def more_fields(case: Case) -> None:
    answer = case.open().ask(PING, [], "of a newer peer", 7)
    expect(answer.kind == PONG, f"answered by {answer.kind}")


@rule(1, "an empty or malformed header is answered Error(protocol) and closes")
def malformed_header(case: Case) -> None:
    for data in (b"\0" * 8, b"\1\0\0\0\0\0\0\0\xc1", b"\1\0\0\0\0\0\0\0\x07"):
        peer = case.open()
        peer.send_bytes(data)
        ends_with(peer, "protocol")


@rule(1, "a prefix beyond the limits is answered Error(too_large) and closes")
def oversized_prefix(case: Case) -> None:
    peer = case.open()
    peer.send_bytes(_FRAME_BYTES_MAX.to_bytes(4, "little") * 2)
    ends_with(peer, "too_large")


@rule(2, "a Welcome names version, node, term and the limits of a connection")
def welcome_names_limits(case: Case) -> None:
    fields = case.open().welcome
    expect(fields[0] == 1 and fields[3] > 0, f"version {fields[0]}, term {fields[3]}")
    limits = dict(map(tuple, fields[10])) if len(fields) > 10 else {}
    missing = [name for name in _LIMITS if name not in limits]
    expect(not missing, f"Welcome.limits lacks {', '.join(missing)}")


@rule(2, "without a common version the answer is unsupported_version")
def no_common_version(case: Case) -> None:
    peer = case.connect()
    answer = peer.hello(versions=(60_000, 60_001))
    expect((answer.kind, answer.fields[0]) == (ERROR, "unsupported_version"), f"{answer}")
    peer.closed()


@rule(2, "nothing may be sent before the Welcome but Hello")
def request_before_hello(case: Case) -> None:
    peer = case.connect()
    peer.send(PING)
    ends_with(peer, "protocol")


@rule(2, "a session that is not there cannot be resumed")
def resume_of_nothing(case: Case) -> None:
    answer = case.connect().hello(resume=True)
    expect((answer.kind, answer.fields[0]) == (ERROR, "session_ended"), f"{answer}")


@rule(2, "another incarnation takes the session, and the older one gets session_taken")
def session_taken(case: Case) -> None:
    older = case.open()
    case.connect(older, life=os.urandom(16)).open()
    ends_with(older, "session_taken")


@rule(2, "an incarnation that was away when its session was taken is refused when it resumes")
def taken_while_away(case: Case) -> None:
    older = case.open()
    older.close()
    newer = case.connect(older, life=os.urandom(16)).open()
    answer = case.connect(older).hello(resume=True)
    expect((answer.kind, answer.fields[0]) == (ERROR, "session_taken"), f"{answer}")
    newer.ok(DECLARE, case.queue(newer), {})


@rule(2, "a second data connection of one incarnation closes the first without a frame")
def replaced_connection(case: Case) -> None:
    older = case.open()
    newer = case.again(older)
    frames = older.closed()
    expect(not frames, f"the first connection got {frames}")
    expect(newer.welcome[4] == 1, "the session was not resumed")
    newer.barrier()


@rule(2, "a control connection may come first and ask anything")
def control_first(case: Case) -> None:
    control = case.connect().open(CONTROL)
    queue = case.queue(control)
    control.subscribe(queue)
    control.stored(queue, [b"x"])
    expect(not control.messages, "a Deliver came on a control connection")
    data = case.again(control)
    expect(data.receive()[0].body == b"x", "another body")
    control.barrier()
    expect(not control.messages, "a Deliver came on a control connection")


@rule(2, "an observer is welcomed and may only send Status and Ping")
def observer(case: Case) -> None:
    peer = case.connect().open(OBSERVER)
    expect(isinstance(peer.ok(STATUS), dict), "Status is answered by a map")
    peer.barrier()
    peer.send(QUEUE_QUERY, None, "list")
    refused = peer.take(lambda frame: frame.kind in (ERROR, OK), "refusal")
    expect(refused.kind == ERROR, "an observer listed the queues")


@rule(2, "the heartbeat is what was asked for, within the node's bounds")
def heartbeat_bounds(case: Case) -> None:
    limits = dict(map(tuple, case.open().welcome[10]))
    low, high = limits["heartbeat_ms_min"], limits["heartbeat_ms_max"]
    for asked, given in ((100, low), (600_000, high), (low + 1, low + 1)):
        got = case.open(heartbeat_ms=asked).welcome[6]
        expect(got == given, f"asked for {asked} ms within {low} to {high}, got {got}")


@rule(3, "requests may be sent without waiting; answers carry their correlation")
def pipelined_requests(case: Case) -> None:
    peer = case.open()
    asked = [peer.send(PING) for _ in range(100)]
    asked += [peer.send(QUEUE_QUERY, None, "list") for _ in range(10)]
    kinds = [peer.answer(correlation).kind for correlation in reversed(asked)]
    expect(kinds == [OK] * 10 + [PONG] * 100, f"answered by {kinds}")


@rule(3, "a correlation of 0, or one that repeats, is copied into the answer")
def correlations_are_copied(case: Case) -> None:
    peer = case.open()
    for correlation in (0, 5, 5, 4, (1 << 63) - 1):
        peer.send(PING, correlation=correlation)
        expect(peer.answer(correlation).kind == PONG, f"no Pong for {correlation}")


@rule(3, "a side that was silent for a heartbeat sends Ping, and closes after two")
def heartbeats(case: Case) -> None:
    silent = case.connect()
    silent.answers_pings = False
    silent.open(heartbeat_ms=500)
    begun, beat_s = time.monotonic(), silent.welcome[6] / 1000
    silent.closed()
    took = time.monotonic() - begun
    expect(PING in silent.arrived, "the node closed without having sent a Ping")
    expect(took >= 1.9 * beat_s, f"closed after {took:.2f} s of silence, two heartbeats are due")


@rule(3, "Close ends the session and the connection")
def close_ends_the_session(case: Case) -> None:
    peer = case.open()
    answer = peer.ask(CLOSE)
    expect(answer.kind == OK, f"answered by {answer.kind}")
    peer.closed()
    again = case.connect(peer).hello(DATA, resume=True)
    expect((again.kind, again.fields[0]) == (ERROR, "session_ended"), f"resumed: {again}")
    expect(case.connect(peer).hello().kind == WELCOME, "the id cannot be used anew")
