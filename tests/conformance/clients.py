"""Rules for clients: a scripted node starts the client's program, and looks at what it does.

Owns the rules, the program's life in each of them, and the outcomes. The program is what
`subject.py` describes; it is started anew for each rule. Must not know any language's client.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Final

from tests.conformance.peer import (
    CLOSE,
    CONTROL,
    DATA,
    ERROR,
    HELLO,
    NOTICE,
    NOTICE_ACK,
    OK,
    PING,
    PONG,
    PUBLISH,
    REDIRECT,
    RENEW,
    SETTLE,
    SUBSCRIBE,
    SUBSCRIBED,
    Broken,
    Frame,
    expect,
    frame_bytes,
)
from tests.conformance.rules import Outcome, Rule, Rules
from tests.conformance.scripted import (
    CONSUMER,
    Heard,
    Line,
    Node,
    publication,
    silence,
)

AT_ONCE: Final = 4
"""Rules that are asked side by side: most of their time the programs wait or start."""

MESSAGE_TIMEOUT, UNKNOWN_KIND = 0, 200


@dataclass
class Subject:
    """The client's program under one rule, and the node that it is given."""

    command: str
    node: Node = field(default_factory=Node)
    process: subprocess.Popen[bytes] | None = None
    words: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def start(self) -> Line:
        """Start the program; wait until it consumes, and return its data connection."""
        self.run()
        self.node.hear(SUBSCRIBE, "a Subscribe")
        return self.node.line()

    def run(self) -> None:
        """Start the program."""
        line = [part.replace("{url}", self.node.url) for part in shlex.split(self.command)]
        self.process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.words
        )

    def settles(self, token: int, what: str) -> Heard:
        """Wait until it settles this token."""

        return self.node.hear(SETTLE, what, lambda one: _names(one, token))

    def ends(self) -> None:
        """Tell the program to end, and wait until it did."""
        self.node.deliver("end")
        self.exits()
        assert self.process is not None
        expect(self.process.returncode == 0, f"exit code {self.process.returncode}{self.said()}")

    def exits(self) -> None:
        """Wait until the program is over."""
        assert self.process is not None
        process = self.process
        self.node.until(lambda: process.poll() is not None, "the end of the program")

    def said(self) -> str:
        """The last line that the program wrote to stderr."""
        self.words.seek(0)
        lines = self.words.read().decode(errors="replace").strip().splitlines()
        return f"; it wrote: {lines[-1]}" if lines else ""

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                self.process.kill()
            self.process.wait()
        self.words.close()
        self.node.close()


rule: Rules[Subject] = Rules()


def run(command: str, only: str = "") -> Iterator[Outcome]:
    """Ask the rules of a program, those whose name contains `only`, in the order of the page."""
    chosen = rule.chosen(only)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield from threads.map(lambda one: Outcome(one, _problem(one, command)), chosen)


def _problem(one: Rule[Subject], command: str) -> str | None:
    subject = Subject(command)
    try:
        one.check(subject)
    except (Broken, OSError) as problem:
        return f"{problem or type(problem).__name__}{subject.said()}"
    except (ValueError, TypeError, LookupError) as problem:
        return f"the client's frame could not be read: {problem!r}"
    finally:
        subject.close()
    return None


def _names(settle: Heard, token: int) -> bool:
    return any(first <= token <= last for first, last in settle.frame.fields[2])


# --- the rules ------------------------------------------------------------------------------------


@rule(2, "the first frame is Hello with correlation 0, and nothing follows it before the Welcome")
def hello_first(subject: Subject) -> None:
    node = subject.node
    waiting: list[tuple[Line, Frame]] = []
    node.hello = lambda line, frame: waiting.append((line, frame))
    subject.run()
    node.until(lambda: waiting, "a Hello")
    line, frame = waiting[0]
    low, high, role, session, incarnation = frame.fields[:5]
    expect(frame.correlation == 0, f"Hello has the correlation {frame.correlation}")
    expect(low <= 1 <= high, f"versions {low} to {high} without 1")
    expect(role in (DATA, CONTROL), f"role {role}")
    expect((len(session), len(incarnation)) == (16, 16), "session and incarnation of 16 bytes")
    expect(session != incarnation, "session and incarnation are drawn, each of its own")
    expect([one.frame.kind for one in node.heard if one.line is line] == [HELLO], "more frames")
    node.hello = node.welcome
    for one, hello in waiting:
        node.welcome(one, hello)
    node.hear(SUBSCRIBE, "a Subscribe after the Welcome")
    subject.ends()


@rule(2, "a Redirect is followed to the address that it names")
def redirect(subject: Subject) -> None:
    node = subject.node
    leader = node.listen()
    nodes = [["first", f"127.0.0.1:{node.port}"], ["leader", f"127.0.0.1:{leader}"]]

    def hello(line: Line, frame: Frame) -> None:
        if line.port == leader:
            node.welcome(line, frame)
            return
        line.send(REDIRECT, "leader", f"127.0.0.1:{leader}", 0, nodes)
        node.drop(line)

    node.hello = hello
    expect(subject.start().port == leader, "it consumes where it was sent")
    subject.ends()


@rule(2, "Redirect(moved) is followed with the same session and incarnation, which is resumed")
def moved(subject: Subject) -> None:
    node = subject.node
    life = subject.start().life
    leader = node.listen()
    nodes = [["first", f"127.0.0.1:{node.port}"], ["leader", f"127.0.0.1:{leader}"]]
    node.heard.clear()
    for line in list(node.lines):
        line.send(REDIRECT, "leader", f"127.0.0.1:{leader}", 0, nodes, True)
        node.drop(line)
    again = node.hear(HELLO, "a Hello at the new leader", lambda one: one.line.port == leader)
    expect(again.line.life == life, "another session or incarnation")
    expect(again.line.resumes, "without resume")
    subject.ends()


@rule(2, "after session_taken the client does not come back with that session")
def session_taken(subject: Subject) -> None:
    node = subject.node
    session = subject.start().life[0]
    node.heard.clear()
    for line in list(node.lines):
        line.send(ERROR, "session_taken", "opened by another client object", False)
        node.drop(line)
    assert subject.process is not None
    process = subject.process

    def decided() -> bool:
        fresh = [one for one in node.heard if one.frame.kind == HELLO]
        return process.poll() is not None or bool(fresh)

    with contextlib.suppress(Broken):  # it may do nothing at all
        node.until(decided, "an end", within_s=2.0)
    back = [one.line.life[0] for one in node.heard if one.frame.kind == HELLO]
    expect(session not in back, "it came back with the session that another one has")


@rule(2, "after session_ended the client goes on with a new session")
def session_ended(subject: Subject) -> None:
    node = subject.node
    ended = subject.start().life[0]
    node.end_sessions()

    def hello(line: Line, frame: Frame) -> None:
        if line.life[0] != ended:
            node.welcome(line, frame)
            return
        line.send(ERROR, "session_ended", "this session has ended", False)
        node.drop(line)

    node.hello = hello
    node.heard.clear()
    node.drop_all()
    fresh = node.hear(HELLO, "a Hello of a new session", lambda one: one.line.life[0] != ended)
    expect(not fresh.line.resumes, "a new session holds nothing to resume")
    node.hear(SUBSCRIBE, "a new Subscribe")
    subject.ends()


@rule(3, "requests have correlations from 1 on, each higher than the one before")
def correlations(subject: Subject) -> None:
    subject.start()
    for number in range(3):
        token = subject.node.deliver(f"echo {number}")
        subject.settles(token, "an ack of what was echoed")
    lines = list(subject.node.lines)
    subject.ends()
    for line in lines:
        numbers = [number for number in line.correlations if number]
        expect(numbers == sorted(set(numbers)), f"{line}: correlations {numbers}")


@rule(3, "a Ping is answered by a Pong with its correlation")
def pong(subject: Subject) -> None:
    line = subject.start()
    line.send(PING, correlation=41)
    subject.node.hear(PONG, "a Pong", lambda one: one.frame.correlation == 41)
    subject.ends()


@rule(3, "a client that is silent for a heartbeat sends a Ping")
def heartbeat(subject: Subject) -> None:
    subject.node.heartbeat_ms = 300
    subject.start()
    subject.node.hear(PING, "a Ping")
    subject.ends()


@rule(3, "a node that is silent for two heartbeats is left, and the session resumed")
def silent_node(subject: Subject) -> None:
    node = subject.node
    node.heartbeat_ms = 300
    line = subject.start()
    life = line.life
    node.heard.clear()
    node.answers[PING] = silence
    again = node.hear(HELLO, "a Hello after the silence")
    node.answers[PING] = lambda line, frame: line.send(PONG, correlation=frame.correlation)
    expect(again.line.life == life and again.line.resumes, "the same session, resumed")
    node.until(lambda: any(one.role == DATA for one in node.lines), "a data connection")
    node.heartbeat_ms = 5_000
    node.drop_all()
    subject.ends()


@rule(3, "a program that ends sends Close, after its settlements")
def close(subject: Subject) -> None:
    node = subject.node
    subject.start()
    token = node.deliver("end")
    subject.settles(token, "an ack of the last message")
    node.hear(CLOSE, "a Close")
    subject.exits()


@rule(4, "messages are numbered without a gap, and previous names the number before")
def numbers(subject: Subject) -> None:
    node = subject.node
    subject.start()
    for text in "abc":
        subject.settles(node.deliver(f"echo {text}"), "an ack of what was echoed")
    frames = [one.frame for one in node.heard if one.frame.kind == PUBLISH]
    before = 0
    for frame in frames:
        expect(frame.fields[2] == before, f"previous {frame.fields[2]}, after number {before}")
        before = publication(frame)[-1][0]
    expect(node.stored == [b"a", b"b", b"c"], f"stored {node.stored}")
    subject.ends()


@rule(4, "an unanswered Publish is sent again after a resume, under the same number")
def unanswered_publish(subject: Subject) -> None:
    node = subject.node
    subject.start()
    node.answers[PUBLISH] = silence
    token = node.deliver("echo once")
    first = node.hear(PUBLISH, "a Publish").frame
    node.answers[PUBLISH] = node.confirm
    node.drop_all()
    again = node.hear(PUBLISH, "the Publish again").frame
    expect(again.fields[:6] == first.fields[:6], f"{first.fields} became {again.fields}")
    expect(again.raw == first.raw, "another raw part")
    subject.settles(token, "an ack of what was echoed")
    expect(node.stored == [b"once"], f"stored {node.stored}")
    subject.ends()


@rule(5, "a Deliver in the same read as Subscribed is handled")
def early_deliver(subject: Subject) -> None:
    node = subject.node

    def at_once(line: Line, frame: Frame) -> None:
        answer = [CONSUMER, node.lock_ms, 1_800_000, frame.fields[2]]
        node.held[1], node.next_token = b"echo early", 2
        line.send_bytes(
            frame_bytes(SUBSCRIBED, frame.correlation, *answer) + node.delivery(1, node.held[1])
        )

    node.answers[SUBSCRIBE] = at_once
    subject.start()
    subject.settles(1, "an ack of the early message")
    subject.ends()


@rule(5, "frames may arrive in any pieces, and have more fields than are known")
def pieces(subject: Subject) -> None:
    node = subject.node
    line = subject.start()
    token = node.next_token
    node.next_token += 1
    node.held[token] = b"echo pieces"
    for byte in node.delivery(token, node.held[token], "a field", {"of": "later"}):
        line.send_bytes(bytes([byte]))
    subject.settles(token, "an ack of what came in pieces")
    subject.ends()


@rule(6, "an unanswered settlement is sent again after a resume, until it is answered")
def unanswered_settlement(subject: Subject) -> None:
    node = subject.node
    subject.start()
    node.answers[SETTLE] = silence
    token = node.deliver("echo settled")
    for _ in range(2):
        subject.settles(token, "a settlement")
        node.drop_all()
    node.answers[SETTLE] = node.receipt
    subject.settles(token, "the settlement again")
    expect(node.stored == [b"settled"], f"handled more than once: {node.stored}")
    subject.ends()


@rule(7, "what is repeated under a token that the client has is not handled again")
def repeats(subject: Subject) -> None:
    node = subject.node
    life = subject.start().life
    kept = node.deliver("hold")
    echoed = node.deliver("echo before")
    subject.settles(echoed, "an ack of what was echoed")
    node.heard.clear()
    node.drop_all()
    again = node.hear(HELLO, "a Hello", lambda one: one.line.role == DATA)
    expect(again.line.life == life and again.line.resumes, "the same session, resumed")
    node.deliver("free")
    subject.settles(kept, "an ack of what was kept")
    expect(node.stored == [b"before"], f"handled more than once: {node.stored}")
    subject.ends()
    more = [one for one in node.heard if one.frame.kind == SETTLE and _names(one, kept)]
    expect(not more, "settled more than once")


@rule(7, "what is held is renewed before its lock ends, again and again")
def renewal(subject: Subject) -> None:
    node = subject.node
    node.lock_ms = 3_000
    subject.start()
    token = node.deliver("hold")
    for _ in range(2):
        before = time.monotonic()
        _renews(node, token)
        lasted_ms = (time.monotonic() - before) * 1000
        expect(lasted_ms < node.lock_ms, f"{lasted_ms:.0f} ms of a lock of {node.lock_ms} ms")
    subject.settles(node.deliver("free"), "an ack of `free`")
    node.heard.clear()
    subject.ends()


@rule(7, "a renewal that is answered not_now is asked for again")
def renewal_not_now(subject: Subject) -> None:
    node = subject.node
    node.lock_ms = 3_000

    def not_now(line: Line, frame: Frame) -> None:
        line.send(ERROR, "not_now", "ask again soon", True, correlation=frame.correlation)

    subject.start()
    node.answers[RENEW] = not_now
    token = node.deliver("hold")
    _renews(node, token)
    node.answers[RENEW] = node.renewed
    _renews(node, token)
    node.deliver("free")
    subject.settles(token, "an ack of what was kept")
    subject.ends()


def _renews(node: Node, token: int) -> None:
    def names(one: Heard) -> bool:
        items = one.frame.fields[0]
        return any(first <= token <= last for _, held in items for first, last in held)

    node.hear(RENEW, "a Renew that names the message", names)


@rule(7, "a notice is acknowledged on the connection that brought it, also one of an unknown kind")
def notices(subject: Subject) -> None:
    node = subject.node
    subject.start()
    lost = node.deliver("hold")
    line = node.lines[-1]
    del node.held[lost]
    line.send(NOTICE, 7, MESSAGE_TIMEOUT, CONSUMER, [[lost, lost]])
    line.send(NOTICE, 9, UNKNOWN_KIND, CONSUMER, [], True, "", "of later")
    found = node.hear(NOTICE_ACK, "a NoticeAck of 9", lambda one: one.frame.fields[0] >= 9)
    expect(found.line is line, "on another connection")
    subject.ends()


@rule(13, "unknown names in Welcome and Ok are ignored")
def later_names(subject: Subject) -> None:
    node = subject.node

    def closed(line: Line, frame: Frame) -> None:
        line.send(OK, {"of": ["later"]}, "a field", correlation=frame.correlation)

    node.answers[CLOSE] = closed
    subject.start()
    subject.ends()
