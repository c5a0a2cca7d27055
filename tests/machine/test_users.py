"""Users of the log: changed by revision, taken over once, and never without an operator."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fifo.machine import Machine, commands, limits
from fifo.machine.replies import Done, Refused
from fifo.words.codes import RefusalCode
from tests.support.machine import Bench


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def fields(*, token: int = 1, **more: Any) -> dict[str, Any]:
    return {"tokens": ((f"t{token}", digest(token), 0),), "publish": ("orders",), **more}


ROOT: dict[str, Any] = {"password": "$scrypt$x", "operate": True}


def put(bench: Bench, name: str, given: dict[str, Any], revision: int = 0) -> Any:
    """The reply, through the plain form that the log has."""
    command = commands.PutUser(name, given, revision)
    return bench.apply(commands.from_list(commands.to_list(command)))[0]


def refused(reply: Any, code: str, words: str) -> None:
    assert isinstance(reply, Refused), reply
    assert (reply.code, words in reply.text) == (code, True), reply.text


def started() -> Bench:
    bench = Bench()
    assert put(bench, "root", ROOT) == Done()
    return bench


def test_a_user_is_created_changed_and_removed_by_its_revision() -> None:
    bench = started()
    assert put(bench, "ann", fields()) == Done()
    ann = bench.machine.users()["ann"]
    assert (ann.revision, ann.publish, ann.tokens[0].name) == (2, ("orders",), "t1")
    refused(put(bench, "ann", fields()), RefusalCode.STALE, "user 'ann' exists (revision 2)")
    assert put(bench, "ann", fields(monitor=True), 2) == Done()
    refused(put(bench, "ann", fields(), 2), RefusalCode.STALE, "changed meanwhile (revision 3)")
    refused(bench.apply(commands.RemoveUser("ann", 2))[0], RefusalCode.STALE, "changed")
    assert bench.apply(commands.RemoveUser("ann", 3))[0] == Done()
    assert list(bench.machine.users()) == ["root"]
    assert bench.machine.users_revision == 4
    refused(bench.apply(commands.RemoveUser("ann", 3))[0], RefusalCode.STALE, "there is no user")
    refused(put(bench, "ann", fields(), 3), RefusalCode.STALE, "was removed meanwhile")


def test_there_is_always_a_user_who_may_operate() -> None:
    bench = Bench()
    refused(put(bench, "ann", fields()), RefusalCode.INVALID, "no user with operate = true left")
    assert bench.machine.users_revision == 0
    bench = started()
    refused(put(bench, "root", {"password": "x"}, 1), RefusalCode.INVALID, "operate = true left")
    refused(bench.apply(commands.RemoveUser("root", 1))[0], RefusalCode.INVALID, "operate = true")
    assert put(bench, "other", fields(operate=True)) == Done()
    assert bench.apply(commands.RemoveUser("root", 1))[0] == Done()


def test_no_two_users_share_what_they_are_known_by() -> None:
    bench = started()
    assert put(bench, "ann", fields(subjects=("CN=a",), loopback=True)) == Done()
    refused(put(bench, "bob", fields()), RefusalCode.INVALID, "another user has this token")
    given = fields(token=2, subjects=("CN=a",))
    refused(put(bench, "bob", given), RefusalCode.INVALID, "certificate subject")
    given = fields(token=2, loopback=True)
    refused(put(bench, "bob", given), RefusalCode.INVALID, "loopback = true: only one may")
    assert list(bench.machine.users()) == ["root", "ann"]


def test_the_only_token_of_a_user_can_be_revoked() -> None:
    bench = started()
    assert put(bench, "ann", fields()) == Done()
    assert put(bench, "ann", {"publish": ("orders",)}, 2) == Done()
    assert not bench.machine.users()["ann"].can_connect
    # But not the last way to be an operator, for then no one could ever change users again.
    given = {"operate": True}
    refused(put(bench, "root", given, 1), RefusalCode.INVALID, "no user with operate = true")
    assert put(bench, "idle", given) == Done()
    removed = bench.apply(commands.RemoveUser("root", 1))[0]
    refused(removed, RefusalCode.INVALID, "no user with operate = true")


def test_users_of_a_file_are_taken_over_once_and_all_at_once() -> None:
    bench = Bench()
    twice = commands.ImportUsers((("root", ROOT), ("root", ROOT)))
    refused(bench.apply(twice)[0], RefusalCode.INVALID, "the same name")
    idle = commands.ImportUsers((("ann", fields()),))
    refused(bench.apply(idle)[0], RefusalCode.INVALID, "operate = true left")
    assert (bench.machine.users_revision, dict(bench.machine.users())) == (0, {})
    both = commands.ImportUsers((("root", ROOT), ("ann", fields())))
    assert bench.apply(both)[0] == Done()
    assert list(bench.machine.users()) == ["root", "ann"]
    assert put(bench, "bob", fields(token=3)) == Done()
    refused(bench.apply(both)[0], RefusalCode.IN_USE, "in the log already")
    assert "bob" in bench.machine.users()


def test_users_are_bounded_in_number() -> None:
    bench = Bench(check=False)
    many = [(f"u{number}", fields(token=number)) for number in range(1, limits.USERS)]
    assert bench.apply(commands.ImportUsers((("root", ROOT), *many)))[0] == Done()
    refused(put(bench, "more", fields(token=5_000)), RefusalCode.LIMIT, "maximum of 1000 users")
    assert put(bench, "u1", fields(token=1, monitor=True), 1) == Done()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"colour": 1}, "colour: unknown field"),
        ({"password": ""}, "password: not text"),
        ({"password": "x" * 301}, "password: not text of 1 to 300"),
        ({"tokens": [["t", b"short", 0]]}, "tokens: not 32 bytes"),
        ({"tokens": [["t\n", bytes(32), 0]]}, "control character"),
        ({"tokens": [["t", bytes(32), 0], ["t", digest(1), 0]]}, "tokens: a name is used twice"),
        ({"shares": [["queues", 1], ["queues", 2]]}, "shares: a name is used twice"),
        ({"publish": ["x"] * 101}, "publish: not a list of at most 100"),
        ({"publish": "orders"}, "publish: not a list"),
        ({"operate": 1}, "operate: not true or false"),
        ({"publish": ["x" * 255] * 65}, "bytes of a user's fields, at most 16384"),
        ([], "not a table"),
    ],
)
def test_fields_of_a_user_are_checked_before_the_log(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        commands.from_list([35, "ann", given])


def test_an_import_fits_into_an_entry() -> None:
    large = {"publish": ["x" * 250] * 60}
    with pytest.raises(ValueError, match="bytes of users, at most 1048576 in one import"):
        commands.from_list([37, [[f"u{number}", large] for number in range(100)]])


def test_random_changes_keep_the_invariants_and_survive_a_snapshot() -> None:
    rng, bench = random.Random(5), started()
    for _ in range(120):
        name = rng.choice(("root", "ann", "bob", "eve"))
        known = bench.machine.users().get(name)
        revision = (known.revision if known else 0) + rng.choice((0, 0, 0, 1))
        if rng.random() < 0.3:
            bench.apply(commands.RemoveUser(name, max(revision, 1)))
        else:
            given = fields(token=rng.randrange(6), operate=rng.random() < 0.5)
            put(bench, name, given, revision)
        data = bench.machine.snapshot()
        restored = Machine.restore(data)
        assert restored.snapshot() == data
        assert restored.users() == bench.machine.users()
        assert restored.users_revision == bench.machine.users_revision


def test_a_frozen_view_keeps_the_users_of_then() -> None:
    bench = started()
    before = bench.machine.snapshot()
    frozen = bench.machine.freeze()
    put(bench, "ann", fields())
    assert frozen.scalars["users"].keys() == {"root"}
    assert bench.machine.snapshot() != before
    frozen.release()
