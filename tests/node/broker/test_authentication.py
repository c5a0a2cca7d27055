"""Proving who somebody is: what is hashed, what is remembered, and how guessing is slowed down."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fifo.wire import Code
from node.broker import limits
from node.broker.connections.authentication import (
    Authentication,
    Denied,
    Failures,
    Verdict,
    is_loopback,
)
from node.broker.permissions import Rights
from node.users import User
from tests.support.users import cheap_hash, user

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from node.journal.io.jobs import Done


class Bench:
    """An authentication whose thread, timer and clock the test drives."""

    def __init__(self, *users: User) -> None:
        self.now = 1000.0
        self.works: list[tuple[Callable[[], None], Done]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.closed = False
        self.verdicts: list[Verdict] = []
        self.door = Authentication(
            users or (user("ann"), user("bob")),
            now=lambda: self.now,
            wall_ms=lambda: int(self.now * 1000),
            call_later=lambda delay, callback: self.timers.append((delay, callback)),
            thread=lambda: self,
        )

    def run(self, work: Callable[[], None], done: Done) -> None:
        self.works.append((work, done))

    def close(self) -> None:
        self.closed = True

    def hash_all(self) -> int:
        """Do the waiting work of the thread, and what follows; return the number of hashes."""
        count = 0
        while self.works:
            self.hash_one()
            count += 1
        return count

    def hash_one(self) -> None:
        """Do the hash that a thread was given first."""
        work, done = self.works.pop(0)
        work()
        done(None)

    def check(
        self, secret: str, *, name: str = "ann", mechanism: str = "password", host: str = "10.0.0.1"
    ) -> None:
        self.door.check(host, mechanism, name, secret.encode(), self.verdicts.append)

    def names(self) -> list[str | None]:
        """Return the users that were let in, in order, None for each refused, and forget them."""
        found = [one.user.name if isinstance(one, Rights) else None for one in self.verdicts]
        self.verdicts.clear()
        return found


def test_a_reload_while_a_password_is_hashed_refuses_no_right_one() -> None:
    bench = Bench()
    bench.check("ann-password")
    bench.door.replace((user("ann"), user("carl")))  # SIGHUP: the same password
    bench.hash_all()
    assert bench.names() == ["ann"]
    assert len(bench.door.failures) == 0


def test_a_password_that_is_changed_while_it_is_hashed_is_checked_again() -> None:
    bench = Bench()
    bench.check("ann-password")
    bench.check("new-password")
    changed = replace(user("ann"), password=cheap_hash("new-password"))
    bench.door.replace((changed,))
    bench.hash_one()
    assert bench.names() == []
    bench.hash_all()
    assert sorted(bench.names(), key=str) == [None, "ann"]


def test_a_user_who_is_removed_while_the_password_is_hashed_is_refused() -> None:
    bench = Bench()
    bench.check("ann-password")
    bench.door.replace((user("bob"),))
    bench.hash_one()
    assert bench.names() == []
    bench.hash_all()
    assert bench.names() == [None]


def test_a_password_is_hashed_off_the_event_loop_and_then_remembered() -> None:
    bench = Bench()
    bench.check("ann-password")
    assert bench.verdicts == []
    assert bench.hash_all() == 1
    assert bench.names() == ["ann"]
    bench.check("ann-password", host="10.9.9.9")
    assert (bench.names(), bench.works) == (["ann"], [])
    bench.check("bob-password")
    bench.hash_all()
    assert bench.names() == [None]


def test_users_with_one_stored_hash_cost_a_hash_each() -> None:
    shared = cheap_hash("shared")
    bench = Bench(User("ann", shared), User("bob", shared))
    for name in ("ann", "bob"):
        bench.check("shared", name=name)
        assert bench.hash_all() == 1
    assert bench.names() == ["ann", "bob"]


def test_a_thousand_that_come_at_once_with_one_secret_cost_one_hash() -> None:
    bench = Bench()
    for i in range(1000):
        bench.check("ann-password", host=f"10.0.{i // 250}.{i % 250}")
    assert bench.hash_all() == 1
    assert bench.names() == ["ann"] * 1000


@pytest.mark.slow
def test_a_user_that_does_not_exist_costs_as_much_as_one_that_does() -> None:
    bench = Bench(user("ann"), User("prog", None, user("prog").tokens))
    for name in ("absent", "prog"):
        bench.check("x", name=name)
        assert bench.hash_all() == 1
    assert bench.names() == [None, None]


@pytest.mark.slow
def test_too_many_different_secrets_at_once_are_refused_unhashed() -> None:
    # Users that exist: their hashes are cheap here, and that of a name that is not known is not.
    names = [f"u{i}" for i in range(limits.LOGINS_CHECKED_PER_ADDRESS_MAX + 1)]
    bench = Bench(user("ann"), *map(user, names))
    for name in names:
        bench.check("x", name=name)
    [refused] = bench.verdicts
    assert isinstance(refused, Denied)
    assert refused.code == Code.OVERLOADED
    bench.check("ann-password", host="10.0.0.2")
    assert bench.hash_all() == limits.LOGINS_CHECKED_PER_ADDRESS_MAX + 1
    assert bench.names()[-1] is None


@pytest.mark.slow
def test_a_full_queue_of_passwords_drops_who_has_failed_most() -> None:
    bench = Bench()
    bench.door.failures.note("10.0.0.66", "ann")
    dropped: list[Verdict] = []
    bench.check("under way", host="10.0.0.1")
    bench.door.check("10.0.0.66", "password", "ann", b"guess", dropped.append)
    for count in range(limits.LOGINS_CHECKED_MAX - 1):
        bench.check("x", name=f"u{count}", host=f"10.0.2.{count}")
    assert bench.verdicts == []
    [verdict] = dropped
    assert isinstance(verdict, Denied)
    assert verdict.code == Code.OVERLOADED


def test_a_right_password_waits_for_one_hash_of_those_that_guess_at_fifty_addresses() -> None:
    bench = Bench()
    hosts = [f"10.0.1.{i}" for i in range(50)]
    for host in hosts:
        bench.check(f"guess of {host}", host=host)
    bench.hash_all()
    bench.names()
    for at, host in enumerate(hosts):
        if at == 25:
            bench.check("ann-password", host="10.0.0.1")
        bench.check(f"another guess of {host}", host=host)
    bench.hash_one()  # that was under way
    bench.hash_one()
    assert bench.names() == [None, "ann"]


def first_guesses(bench: Bench, at: str, *, net: str = "10.0.1") -> None:
    """A guess from each of fifty new addresses, at one name or at many that exist."""
    for host in range(50):
        name = f"u{host}" if at == "all names" else at
        bench.check(f"guess {net} {host}", name=name, host=f"{net}.{host}")


GUESSED_AT = ("ann", "bob", "all names")


def with_many_users() -> Bench:
    """Users that exist: their hashes are cheap here, and that of an unknown name is not."""
    return Bench(*(user(name) for name in ("ann", "bob", *(f"u{host}" for host in range(50)))))


@pytest.mark.slow
@pytest.mark.parametrize("hashed", [0, 1, 2])
@pytest.mark.parametrize("at", GUESSED_AT)
def test_a_new_address_waits_for_two_of_fifty_first_guesses_before_it(at: str, hashed: int) -> None:
    bench = with_many_users()
    first_guesses(bench, at)
    for _ in range(hashed):
        bench.hash_one()
    bench.check("ann-password", host="10.0.0.1")
    for _ in range(3):  # Under way, the oldest, the newest.
        bench.hash_one()
    assert "ann" in bench.names()


@pytest.mark.slow
@pytest.mark.parametrize("at", GUESSED_AT)
def test_a_new_address_waits_for_two_of_fifty_first_guesses_after_it(at: str) -> None:
    bench = with_many_users()
    bench.check("bob-password", name="bob", host="10.0.0.2")
    bench.check("ann-password", host="10.0.0.1")
    first_guesses(bench, at)
    for _ in range(3):
        bench.hash_one()
    assert "ann" in bench.names()


@pytest.mark.slow
@pytest.mark.parametrize("known_by", ["token", "password"])
@pytest.mark.parametrize("at", GUESSED_AT)
def test_an_address_where_a_secret_was_right_waits_for_no_first_guess(
    at: str, known_by: str
) -> None:
    bench = with_many_users()
    bench.check(f"bob-{known_by}", name="bob", mechanism=known_by, host="10.0.0.1")
    bench.hash_all()
    bench.names()
    first_guesses(bench, at)
    bench.check("ann-password", host="10.0.0.1")
    first_guesses(bench, at, net="10.0.2")
    bench.hash_one()  # that was under way
    bench.hash_one()
    assert bench.names() == [None, "ann"]


def test_an_address_where_a_secret_was_right_overtakes_the_guess_under_way() -> None:
    bench = with_many_users()
    bench.check("bob-token", name="bob", mechanism="token", host="10.0.0.1")
    bench.names()
    bench.check("guess", host="10.0.0.66")
    bench.check("another guess", host="10.0.0.67")
    assert len(bench.works) == 1  # Of those that are alike one at a time.
    bench.check("ann-password", host="10.0.0.1")
    bench.check("bob-password", name="bob", host="10.0.0.1")
    guess = bench.works.pop(0)
    bench.hash_one()
    assert bench.names() == ["ann"]
    bench.works.append(guess)
    assert len(bench.works) == 2  # Never a third.
    bench.hash_all()
    assert bench.names() == ["bob", None, None]


def test_addresses_where_a_secret_was_right_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOGIN_ADDRESSES_MAX", 3)
    bench = with_many_users()
    for host in (1, 2, 3, 1, 4):
        bench.check("bob-token", name="bob", mechanism="token", host=f"10.0.0.{host}")
    bench.names()
    bench.check("under way", host="10.0.0.9")
    for host in range(1, 5):
        bench.check(f"u{host}-password", name=f"u{host}", host=f"10.0.0.{host}")
    bench.hash_all()
    assert bench.names()[-1] == "u2"  # Forgotten: the one whose last right secret is the oldest.


def test_a_failure_a_second_ago_is_one() -> None:
    bench = Bench()
    bench.check("guess", host="10.0.0.66")
    bench.hash_all()
    bench.now += 1
    bench.check("bob-password", name="bob", host="10.0.0.2")
    bench.check("guess again", host="10.0.0.66")
    bench.check("ann-password", host="10.0.0.1")
    bench.hash_one()
    bench.hash_one()
    assert bench.names() == [None, "bob", "ann"]


def test_addresses_that_have_failed_alike_are_served_in_turn() -> None:
    bench = Bench(*[user(f"u{i}") for i in range(3)], user("ann"))
    for host in ("10.0.0.1", "10.0.0.2"):  # A secret was right at both.
        bench.check("ann-token", mechanism="token", host=host)
    bench.names()
    for i in range(3):
        if i == 2:
            bench.check("ann-password", host="10.0.0.2")
        bench.check(f"u{i}-password", name=f"u{i}", host="10.0.0.1")
    bench.hash_one()
    bench.hash_one()
    assert bench.names() == ["u0", "ann"]


def test_wrong_tokens_cost_their_neighbours_nothing() -> None:
    bench = Bench()
    for _ in range(40):
        bench.check("an old token", name="", mechanism="token")
    waiting = limits.LOGINS_DELAYED_PER_ADDRESS_MAX
    assert bench.names() == [None] * (40 - waiting)
    assert len(bench.timers) == waiting
    bench.check("bob-token", name="", mechanism="token")
    bench.check("ann-password")
    bench.hash_one()
    assert bench.names() == ["bob", "ann"]
    for _, go_on in bench.timers:
        go_on()
    assert bench.names() == [None] * waiting


@pytest.mark.parametrize(
    ("name", "secret", "found"),
    [
        ("", "bob-token", "bob"),
        ("bob", "bob-token", "bob"),
        ("ann", "bob-token", None),
        ("", "bob-password", None),
        ("", "", None),
        ("", "t" * 2000, None),
    ],
)
def test_a_token_needs_no_name_and_no_thread(name: str, secret: str, found: str | None) -> None:
    bench = Bench()
    bench.check(secret, name=name, mechanism="token")
    assert (bench.names(), bench.works) == ([found], [])


def test_guessing_gets_slower_and_people_may_mistype() -> None:
    bench = Bench()
    delays = []
    for guess in range(12):
        bench.check(f"guess-{guess}")
        if bench.timers:
            delay, go_on = bench.timers.pop()
            delays.append(delay)
            go_on()
        bench.hash_all()
    assert bench.names() == [None] * 12
    assert len(delays) == 12 - limits.LOGIN_FAILURES_FREE
    assert delays[:4] == [0.25, 0.5, 1.0, 2.0]
    assert max(delays) == limits.LOGIN_DELAY_SECONDS_MAX
    # The right one has to wait too, or the wait would tell a guesser nothing but time.
    bench.check("ann-password")
    assert bench.timers
    # Another user at this address, and this user elsewhere, do not.
    bench.timers.clear()
    bench.check("bob-password", name="bob")
    bench.check("ann-password", host="10.0.0.2")
    bench.hash_all()
    assert (bench.names(), bench.timers) == (["bob", "ann"], [])


def test_the_refusal_of_a_wrong_token_waits_longer_each_time() -> None:
    bench = Bench()
    for _ in range(7):
        bench.check("an old token", name="", mechanism="token")
    assert [delay for delay, _ in bench.timers] == [0.25, 0.5, 1.0, 2.0, 2.0]
    assert bench.door.failures.delay_seconds("10.0.0.1", "ann") == 0.0


def test_waiting_log_ins_of_one_address_are_bounded() -> None:
    bench = Bench()
    for _ in range(8):
        bench.door.failures.note("10.0.0.1", "ann")
    for _ in range(limits.LOGINS_DELAYED_PER_ADDRESS_MAX + 1):
        bench.check("ann-password")
    assert len(bench.timers) == limits.LOGINS_DELAYED_PER_ADDRESS_MAX
    assert bench.names() == [None]
    for _, go_on in bench.timers:
        go_on()
    bench.hash_all()
    assert bench.names() == ["ann"] * limits.LOGINS_DELAYED_PER_ADDRESS_MAX
    bench.check("ann-password")
    assert bench.names() == ["ann"]


def test_failures_are_forgotten_with_time_and_bounded_in_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    failures = Failures(lambda: now)
    for _ in range(5):
        failures.note("h", "ann")
    assert failures.delay_seconds("h", "ann") == 1.0
    now = 60.0
    assert failures.delay_seconds("h", "ann") == 0.0
    for name in range(35):
        failures.note("h", f"u{name}")
    assert failures.delay_seconds("h", "somebody") > 0
    monkeypatch.setattr(limits, "LOGIN_ADDRESSES_MAX", 10)
    for host in range(100):
        failures.note(f"h{host}", "ann")
    assert len(failures) == 10


def test_no_secret_and_no_unknown_name_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.DEBUG):
        bench.check("s3cret-1")
        bench.check("s3cret-2", name="a-password-in-the-wrong-place")
        bench.check("s3cret-3", mechanism="token", name="")
        bench.hash_all()
    assert "event=login_failed user=ann address=10.0.0.1" in caplog.text
    assert caplog.text.count("event=login_failed") == 2  # of one address: a user, and no user
    assert "s3cret" not in caplog.text
    assert "wrong-place" not in caplog.text


def test_who_says_nothing_is_the_loopback_user_only_on_this_machine() -> None:
    bench = Bench(user("ann"), User("local", loopback=True))
    verdict = bench.door.without_credentials("127.0.0.1")
    assert isinstance(verdict, Rights)
    assert verdict.user.name == "local"
    assert isinstance(bench.door.without_credentials("10.0.0.1"), Denied)
    assert isinstance(Bench().door.without_credentials("127.0.0.1"), Denied)


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_recognized_by_the_numeric_address(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def test_the_thread_ends_with_the_node() -> None:
    bench = Bench()
    bench.door.close()
    assert not bench.closed
    bench.check("ann-password")
    bench.door.close()
    assert bench.closed


def test_a_guesser_gets_no_line_of_the_log_per_guess(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for at in range(500):
        bench.check(f"guess-{at}", mechanism="token", name="")
    assert caplog.text.count("event=login_failed") == 1
