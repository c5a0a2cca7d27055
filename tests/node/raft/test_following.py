"""The peer port follows the members, on real sockets: who is dialed, heard, asked."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from bench.loopback import free_ports
from node.peers import asking, limits
from node.peers.asking import Question, Unanswered, ask
from node.peers.frames import PROTOCOL_OF_CHANGES
from node.peers.guests import Guest
from node.peers.message import PeerNode
from tests.node.raft.test_transport import Member, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from node.peers.message import Message

JOURNAL = bytes(range(16))
ABOUT = {"type": "about", "peer": "h:1", "client": "h:2", "http": "h:3"}


def journal_frame(journal: bytes = JOURNAL) -> dict[str, Any]:
    """The frame in which a member says which journal it has."""
    return {
        "type": "journal", "journal": journal, "opens": 1, "open_id": journal, "state": 0,
        "term": 0, "index": 0, "rows": [], "connected": [],
    }  # fmt: skip


class Scene:
    """Nodes on loopback, of which each follows those that a test names."""

    def __init__(self, names: str) -> None:
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.members: dict[str, Member] = {}

    def at(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", self.ports[name]

    async def start(
        self, name: str, follows: str, *, version: int = PROTOCOL_OF_CHANGES, **changes: Any
    ) -> Member:
        peers = {other: self.at(other) for other in follows}
        member = self.members[name] = Member(name, self.ports, peers=peers, **changes)
        member.transport.versions.used = version
        await member.transport.start()
        return member

    def follow(self, name: str, follows: str) -> None:
        self.members[name].transport.follow({other: self.at(other) for other in follows})

    async def close(self) -> None:
        for member in self.members.values():
            await member.transport.close()


def _knows(member: Member, name: str) -> bool:
    return f"+{name}" in member.events


class FinishesWhileConnecting(Member):
    """A member that hears of the finish of an upgrade as another one connects."""

    def connected(self, node: PeerNode) -> None:
        super().connected(node)
        self.transport.use_protocol(PROTOCOL_OF_CHANGES)


@contextlib.asynccontextmanager
async def scene(names: str) -> AsyncIterator[Scene]:
    made = Scene(names)
    try:
        yield made
    finally:
        await made.close()


async def test_one_that_is_added_gets_a_connection_and_one_that_goes_loses_it() -> None:
    async with scene("abc") as nodes:
        a, b = await nodes.start("a", "b"), await nodes.start("b", "a")
        await until(lambda: a.present == {"b"} and b.present == {"a"})
        c = await nodes.start("c", "ab")
        nodes.follow("a", "bc")
        nodes.follow("b", "ac")
        await until(lambda: a.present == {"b", "c"} and b.present == {"a", "c"})
        await until(lambda: c.present == {"a", "b"})
        nodes.follow("a", "b")
        assert a.present == {"b"}
        await until(lambda: "-a" in c.events)
        assert b.present == {"a", "c"}


async def test_one_that_goes_and_comes_back_is_dialed_again() -> None:
    async with scene("ab") as nodes:
        a, b = await nodes.start("a", ""), await nodes.start("b", "a")
        await until(lambda: a.present and b.present)
        b.transport.follow({})
        await until(lambda: not a.present and not b.present)
        nodes.follow("b", "a")
        await until(lambda: a.present and b.present)


async def test_what_was_sent_to_one_that_goes_arrives_before_the_end() -> None:
    async with scene("ab") as nodes:
        a, b = await nodes.start("a", "b"), await nodes.start("b", "a")
        await until(lambda: a.present and b.present)
        await until(lambda: a.transport.tells(next(iter(a.transport._links.values())).node))
        node = a.transport._links["b"].node
        verdict = {
            "type": "verdict", "kind": 7, "journal": JOURNAL, "open_id": JOURNAL, "reason": "gone",
        }  # fmt: skip
        assert a.transport.send(node, verdict)
        a.transport.follow({})
        await until(lambda: [one["type"] for _, one in b.received] == ["verdict"])


async def test_one_that_has_moved_is_dialed_where_it_is() -> None:
    async with scene("abx") as nodes:
        a = await nodes.start("a", "b")
        b = await nodes.start("b", "a", bind=nodes.at("b"))
        await until(lambda: a.present and b.present)
        b.transport.follow({"a": nodes.at("x")})
        assert b.present == {"a"}, "the connection that there is lasts"
        await a.transport.close()
        again = nodes.members["again"] = Member("a", nodes.ports, bind=nodes.at("x"), peers={
            "b": nodes.at("b")
        })  # fmt: skip
        await again.transport.start()
        await until(lambda: again.present == {"b"})


async def test_one_that_is_no_member_is_heard_where_members_may_change() -> None:
    async with scene("ac") as nodes:
        a, c = await nodes.start("a", ""), await nodes.start("c", "a")
        await until(lambda: a.present == {"c"} and c.present == {"a"})
        assert a.transport.guests.waiting() == {}, "it has not said that it wants to join"


async def test_one_that_is_no_member_is_refused_before_members_may_change() -> None:
    async with scene("ac") as nodes:
        a = await nodes.start("a", "", version=4)
        await nodes.start("c", "a", version=4)
        await until(lambda: a.counters.peers_refused_total >= 2)
        assert not a.present


async def test_one_that_joins_dials_every_member_and_says_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those with a greater name, and at once: they do not know it."""
    monkeypatch.setattr(limits, "DIAL_OTHERWISE_SECONDS", 60.0)
    async with scene("abc") as nodes:
        a, c = await nodes.start("a", "c"), await nodes.start("c", "a")
        b = nodes.members["b"] = Member("b", nodes.ports)
        b.transport.versions.used = PROTOCOL_OF_CHANGES
        b.transport.about = ABOUT
        await b.transport.start()
        await until(lambda: b.present == {"a", "c"})
        for name in ("a", "c"):
            b.transport.send(b.transport._links[name].node, journal_frame())
        waiting = {"b": Guest("b", JOURNAL, "h:1", "h:2", "h:3")}
        await until(lambda: a.transport.guests.waiting() == waiting)
        await until(lambda: c.transport.guests.waiting() == waiting)
        nodes.follow("a", "bc")
        assert a.transport.guests.waiting() == {}, "it is a member now"
        assert "-b" not in a.events, "by the same connection"
        await b.transport.close()
        await until(lambda: c.transport.guests.waiting() == {})


async def test_guests_take_no_place_of_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GUESTS_MAX", 1)
    async with scene("abcd") as nodes:
        a, _ = await nodes.start("a", "b"), await nodes.start("b", "a")
        await until(lambda: a.present == {"b"})
        for name in "cd":
            await nodes.start(name, "a")
            await until(partial(_knows, a, name))
        await until(lambda: "-c" in a.events)
        assert "-b" not in a.events


async def test_guests_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GUESTS_MAX", 2)
    async with scene("abcd") as nodes:
        a = await nodes.start("a", "")
        for name in "bcd":
            await nodes.start(name, "a")
            await until(partial(_knows, a, name))
        await until(lambda: a.events.count("-b") >= 1)
        assert len(a.present) <= 3


@pytest.mark.slow
async def test_one_that_is_not_known_where_it_should_dial_dials_itself() -> None:
    async with scene("ab") as nodes:
        a, b = await nodes.start("a", "b"), await nodes.start("b", "")
        await until(lambda: a.present == {"b"} and b.present == {"a"})


async def test_a_connection_on_which_no_versions_were_said_yet_outlives_the_finish() -> None:
    """The other side says its versions right behind its proof: until then nothing judges it. All
    connections of a new leader ended so, again and again."""
    async with scene("ab") as nodes:
        a = nodes.members["a"] = FinishesWhileConnecting("a", nodes.ports)
        await a.transport.start()
        b = await nodes.start("b", "a")
        await until(lambda: "b" in a.transport.versions.heard)
        await until(lambda: "a" in b.transport.versions.heard)
        assert (a.events, b.events) == (["+b"], ["+a"])


@pytest.mark.slow
async def test_no_member_dials_out_of_turn_before_members_may_change() -> None:
    async with scene("ab") as nodes:
        a = await nodes.start("a", "b", version=4)
        b = await nodes.start("b", "", version=4)
        with pytest.raises(TimeoutError):
            await until(lambda: b.counters.accepted_total, limits.DIAL_OTHERWISE_SECONDS + 0.5)
        assert not a.present


async def test_a_question_is_answered_and_no_member_comes_of_it() -> None:
    async with scene("ab") as nodes:
        a, b = await nodes.start("a", ""), Member("b", nodes.ports, peers={})
        a.transport.answer = lambda: {
            "type": "members", "reason": "", "configuration": b"who they are",
        }  # fmt: skip
        answer = await ask(b.transport, nodes.at("a"))
        assert (answer.reason, answer.configuration) == ("", b"who they are")
        assert not a.events
        assert a.transport.handshakes == 0
        a.transport.answer = lambda: {
            "type": "members", "reason": "not now", "configuration": b"",
        }  # fmt: skip
        assert (await ask(b.transport, nodes.at("a"))).reason == "not now"


class Slow(Question):
    """A question that its node has not asked yet."""

    def send(self, message: Message) -> bool:
        return message["type"] != "ask" and super().send(message)


async def test_a_question_is_no_stranger_once_it_is_proven() -> None:
    """The strangers are few, and the oldest has to go: a proven node keeps its connection."""
    async with scene("ab") as nodes:
        a, b = await nodes.start("a", ""), Member("b", nodes.ports, peers={})
        link = await b.transport.dial_as(Slow, nodes.at("a"))
        await until(lambda: link.proven)
        await until(lambda: not a.transport.handshakes)
        assert not b.transport.handshakes
        link.close()


async def test_a_node_that_is_not_ready_says_so_to_a_question() -> None:
    async with scene("ab") as nodes:
        await nodes.start("a", "")
        answer = await ask(Member("b", nodes.ports, peers={}).transport, nodes.at("a"))
        assert answer.reason == "this node is not ready; ask again"


async def test_a_question_to_another_program_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(limits, "HANDSHAKE_SECONDS", 0.6)
    async with scene("ab") as nodes:
        port = Member("b", nodes.ports, peers={}).transport
        with (
            socket.create_server(nodes.at("a")),
            pytest.raises(Unanswered, match="does not answer: is another program there"),
        ):
            await asking.ask(port, nodes.at("a"))


@pytest.mark.parametrize(
    "changes",
    [{"secret": b"another secret!!!"}, {"cluster_id": b"another cluster!"}, {"name": "a"}],
)
async def test_a_stranger_has_no_answer(changes: dict[str, Any]) -> None:
    async with scene("ab") as nodes:
        a = await nodes.start("a", "")
        stranger = Member(changes.pop("name", "b"), nodes.ports, **{"peers": {}} | changes)
        with pytest.raises(Unanswered, match="without an answer"):
            await ask(stranger.transport, nodes.at("a"))
        assert a.counters.peers_refused_total == 1


async def test_a_question_to_no_node_ends_with_the_reason() -> None:
    async with scene("ab") as nodes:
        member = Member("b", nodes.ports, peers={})
        with pytest.raises(Unanswered, match="cannot be reached"):
            await ask(member.transport, nodes.at("a"))


class Words(Question):
    """A connection for a question on which the words of a leader are said."""

    def send(self, message: Message) -> bool:
        word = {"type": "skipped", "term": 9, "index": 1, "checksum": 1, "by": "b"}
        return super().send(word if message["type"] == "ask" else message)


async def test_a_node_that_asks_says_nothing_else() -> None:
    """Else it would be heard without a name that the others know."""
    async with scene("ab") as nodes:
        a, b = await nodes.start("a", ""), Member("b", nodes.ports, peers={})
        link = await b.transport.dial_as(Words, nodes.at("a"))
        await asyncio.wait_for(asyncio.shield(link.ended), 8.0)
        assert link.answer is None
        assert a.counters.frames_invalid_total == 1
        assert not a.received


async def test_a_connection_for_a_question_takes_nothing_else() -> None:
    async with scene("ab") as nodes:
        a, b = await nodes.start("a", ""), Member("b", nodes.ports, peers={})
        a.transport.answer = lambda: journal_frame()
        with pytest.raises(Unanswered):
            await ask(b.transport, nodes.at("a"))
        assert b.counters.frames_invalid_total == 1
        assert not b.received
