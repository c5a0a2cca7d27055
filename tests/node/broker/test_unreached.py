"""Clients that reach a follower and not the leader: whose word counts, and what the leader does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fifo.wire.messages import Challenge, Redirect
from node.broker import limits, unreached
from node.broker.unreached import Complaints, Moves, sessions_in
from node.server import Node
from tests.support.cluster import LocalCluster, running
from tests.support.rawclient import RawClient
from tests.support.users import EVERYTHING, user

ANN = user("ann", **EVERYTHING)


def session(number: int) -> bytes:
    """The id of a session."""
    return number.to_bytes(16)


class Follower:
    """A follower's knowledge of its leader, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.leads: tuple[str, int] | None = ("n1", 7)
        self.complaints = Complaints(lambda: self.leads, lambda: self.now)

    def hears(self, *numbers: int, leader: str = "n1") -> None:
        """These sessions say that they cannot reach the leader."""
        for number in numbers:
            self.complaints.note(session(number), leader)

    def passes(self, seconds: float, *numbers: int) -> None:
        """Time in which these sessions say it again and again."""
        end = self.now + seconds
        while self.now < end:
            self.hears(*numbers)
            self.now += limits.UNREACHED_NEWS_SECONDS / 2
        self.now = end

    def tells(self) -> frozenset[bytes]:
        """The sessions in its next note."""
        self.now += limits.UNREACHED_TELL_SECONDS
        return sessions_in(self.complaints.due() or b"")


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_a_client_counts_when_it_has_said_so_for_some_seconds(follower: Follower) -> None:
    follower.passes(1.0, 1, 2)
    assert not follower.tells()
    follower.passes(limits.UNREACHED_AFTER_SECONDS, 1)
    follower.hears(3)
    assert follower.tells() >= {session(1)}
    assert session(3) not in follower.tells()


def test_a_client_that_says_so_no_more_is_forgotten(follower: Follower) -> None:
    follower.passes(limits.UNREACHED_AFTER_SECONDS, 1, 2)
    follower.passes(limits.UNREACHED_SECONDS, 2)
    assert follower.tells() == {session(2)}


def test_what_was_said_of_another_leader_or_term_does_not_count(follower: Follower) -> None:
    follower.hears(1, leader="n3")
    assert not len(follower.complaints)
    for leads in (("n1", 8), ("n3", 9), None):
        follower.leads = ("n1", 7)
        follower.passes(limits.UNREACHED_AFTER_SECONDS, 1)
        follower.leads = leads
        assert not follower.tells()


def test_a_follower_remembers_a_bounded_number_of_them(follower: Follower) -> None:
    most = limits.UNREACHED_SESSIONS_MAX
    follower.hears(*range(most + 10))
    assert len(follower.complaints) == most
    assert not follower.complaints.wanted(session(most + 10), "n1")


def test_a_client_is_not_asked_again_at_once_who_it_is(follower: Follower) -> None:
    assert follower.complaints.wanted(session(1), "n1")
    follower.hears(1)
    assert not follower.complaints.wanted(session(1), "n1")
    follower.now += limits.UNREACHED_NEWS_SECONDS
    assert follower.complaints.wanted(session(1), "n1")


def test_a_leader_goes_by_the_greater_number_of_clients() -> None:
    one, two, three, four = map(session, range(4))
    assert unreached.better_node({one, two}, {}) is None
    assert unreached.better_node({one}, {"n2": two + three}) == ("n2", 2)
    assert unreached.better_node({one, two}, {"n2": three + four}) is None
    assert unreached.better_node(set(), {"n2": one, "n3": two + three}) == ("n3", 2)


def test_a_client_whose_words_arrive_and_that_hears_nothing_is_not_served() -> None:
    """Where only the way back is cut, it attaches again and again."""
    one, two = session(1), session(2)
    assert unreached.better_node({one, two}, {"n2": one + two}) == ("n2", 2)


def test_a_leader_does_not_move_again_at_once() -> None:
    now = 50.0
    moves = Moves(lambda: now)
    moves.begin()
    now += limits.LEADER_MOVE_SECONDS - 0.1
    assert not moves.may()
    now += 0.1
    assert moves.may()


async def complaining(follower: Node, leader: Node, secret: bytes) -> RawClient:
    """A client of ann that reaches a follower and not the leader; it is sent to that one."""
    client = await RawClient().connect(follower.me.client)
    answer = await client.hello(user="ann", secret=("password", secret), unreached=leader.me.name)
    assert isinstance(answer.message, Redirect)
    assert answer.message.address == str(leader.me.client)
    return client


async def follower_and_leader(cluster: LocalCluster) -> tuple[Node, Node]:
    """Both, when they know each other."""
    leader = await cluster.leader()
    return cluster.followers()[0], leader


async def test_only_the_word_of_a_user_counts(tmp_path: Path) -> None:
    async with running(tmp_path, users=(ANN,)) as cluster:
        follower, leader = await follower_and_leader(cluster)
        said = follower.broker._complaints
        client = await complaining(follower, leader, b"a wrong password")
        assert Challenge in client.arrived
        assert not len(said)
        client = await complaining(follower, leader, b"ann-password")
        assert Challenge in client.arrived
        assert len(said) == 1


async def test_a_client_is_asked_for_no_secret_about_a_node_that_does_not_lead(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, users=(ANN,)) as cluster:
        follower, _ = await follower_and_leader(cluster)
        client = await RawClient().connect(follower.me.client)
        answer = await client.hello(
            user="ann", secret=("password", b"ann-password"), unreached="n9"
        )
        assert isinstance(answer.message, Redirect)
        assert Challenge not in client.arrived
        assert not len(follower.broker._complaints)
