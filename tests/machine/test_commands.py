"""The plain form of commands: it round-trips, and malformed values are refused."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fifo.machine import commands, spec

SAMPLES: list[commands.Command] = [
    commands.Lead(7),
    commands.Tick(),
    commands.Tick(((1, 2, 3), (4, 5, 6))),
    commands.SetVersion(1),
    commands.Attach(bytes(16), 1, bytes(range(16)), bytes(16), "user", "host:1", "worker", True),
    commands.Detach(1, 0, 2),
    commands.Disconnect(1, 2, 0, ((3, 4),)),
    commands.EndSession(1, 1),
    commands.Declare("q", {"lock_ms": 5_000}),
    commands.UpdateQueue("q", {"max_length": None}),
    commands.DeleteQueue("q"),
    commands.Purge("q"),
    commands.PauseQueue("q"),
    commands.ResumeQueue("q"),
    commands.OpenProducer("p"),
    commands.ForgetProducer("p"),
    commands.Publish(1, 0, "q", 0, 1, 2, 3, 4, (5, 6), None, 7, None, 8, None, 9, 3, (0, 1)),
    commands.PublishAcross(
        1, 0, ("q", "r"), 3, 0, 8, 24, 40, 52, 60, (61, 62), None, 7, fence=(0, 1)
    ),
    commands.Subscribe(1, "t", "q", {"prefetch": 5}),
    commands.Cancel(1, 2, ((1, 2), (4, 4))),
    commands.Credit(1, 2, 3, drain=True, automatic=True),
    commands.Get(1, "q", 3, 5_000),
    commands.Alive(1, 2, 3),
    commands.Settle(
        *(1, 2, 1, ((1, 5),), 100, "r", "d", "T", "t", "s", 1),
        *(((2, 3), None, None, (5, 1)), True, (0, 9)),
    ),
    commands.NoticeAck(1, 2),
    commands.Redrive("q", "t", {"reason": "expired"}, 5, 6, reset_counts=False),
    commands.RedriveStep("q", 1, 2, (1,)),
    commands.RedriveStop("q"),
    commands.Move("q", "r", 4),
    commands.MessageAction("q", 7, (1, 2, 3), 4, 5, 6, "t", 7, "r", "d", ((0, 1), (1, 2), (3, 4))),
    commands.OpenDurable("q", "n"),
    commands.Reserve(1, 2, 3, 4, 5),
    commands.Fetch(1, 2, 3, 4, 5, 6),
    commands.AckUpto(1, 2, 3, 2, 1),
    commands.RenewDurable(1, 2),
    commands.Forget(1, 2),
    commands.PutUser("ann", {"publish": ("q",), "tokens": (("t", bytes(32), 5),)}, 3),
    commands.RemoveUser("ann", 3),
    commands.ImportUsers((("ann", {"operate": True, "shares": (("queues", 7),)}),)),
]


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: type(command).__name__)
def test_a_command_round_trips_through_its_plain_form(command: commands.Command) -> None:
    plain = commands.to_list(command)
    assert commands.from_list(plain) == command
    # As msgpack gives it back: lists where there were tuples.
    assert commands.from_list(listed(plain)) == command


def listed(value: Any) -> Any:
    return [listed(one) for one in value] if isinstance(value, (list, tuple)) else value


def test_there_is_a_sample_of_every_command() -> None:
    assert {type(sample) for sample in SAMPLES} == set(commands.Command.__args__)


def test_trailing_defaults_are_cut() -> None:
    assert commands.to_list(commands.Publish(1, 0, "q", 0, 1, 2, 3, 4)) == [
        15,
        1,
        0,
        "q",
        0,
        1,
        2,
        3,
        4,
    ]
    assert commands.to_list(commands.Tick()) == [2]


@pytest.mark.parametrize(
    "plain",
    [
        [],
        None,
        [True, 1],
        [99],
        [1],
        [1, 2, 3],
        [1, -1],
        [1, True],
        [1, 1.0],
        [1, 1 << 63],
        [4, b"short", 0, bytes(16)],
        [4, bytes(16), 2, bytes(16)],
        [8, "", {}],
        [8, "q" * 256, {}],
        [8, "\ud800", {}],
        [8, "q", {1: 2}],
        [15, 1, 0, "q", 0, 0, 1, 0, 0],
        [15, 1, 0, "q", 0, 1, 10_001, 0, 0],
        [15, 1, 0, "q", 0, 1, 1, 0, 0, (1,)],
        [21, 1, 1, 4, ((1, 1),)],
        [21, 1, 1, 0, ((2, 1),)],
        [21, 1, 1, 0, ((1, 2), (2, 3))],
        [21, 1, 1, 0, ((1, 1),) * 4_097],
        [21, 1, 1, 0, ((1, 1),), None, "r" * 1_025],
        [19, 1, "q", 1, 999],
    ],
)
def test_a_malformed_command_is_refused_before_the_log(plain: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        commands.from_list(plain)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.integers(0, 40), st.lists(VALUES, max_size=18))
def test_random_values_are_a_command_or_a_value_error(code: int, values: list[Any]) -> None:
    try:
        command = commands.from_list([code, *values])
    except ValueError:
        return
    assert commands.from_list(commands.to_list(command)) == command


@pytest.mark.parametrize("code", sorted(commands._FORMS))
def test_every_field_of_a_command_has_its_check(code: int) -> None:
    """A field without one is refused when the entry is applied, which stops every node."""
    kind, checks = commands._FORMS[code]
    assert len(checks) == len(dataclasses.fields(kind))


@pytest.mark.parametrize("character", "\x00\n\x1b\x7f\x9b\u2028\u202e\u2066")
@pytest.mark.parametrize(
    "make",
    [
        lambda name: commands.Declare(name, {}),
        lambda name: commands.Declare("q", {"dead_letter": name}),
        lambda name: commands.OpenProducer(name),
        lambda name: commands.Subscribe(1, name, "q", {}),
        lambda name: commands.OpenDurable("q", name, {}),
        lambda name: commands.Attach(bytes(16), 0, bytes(16), bytes(16), "", "host:1", name),
    ],
)
def test_a_new_name_with_a_control_character_is_refused(make: Any, character: str) -> None:
    command = make(f"a{character}b")
    if isinstance(command, commands.Declare) and command.spec:
        with pytest.raises(spec.SpecError, match="dead_letter: a name with the control character"):
            spec.queue_spec(command.spec)
        return
    with pytest.raises(ValueError, match=f"control character U\\+{ord(character):04X}; leave it"):
        commands.from_list(commands.to_list(command))


def test_a_name_may_have_every_letter_of_the_world() -> None:
    for name in ("orders", "Bestellungen für Köln", "заказы", "注文", "🐇👩\u200d💻", "a b*[c]"):
        command = commands.Declare(name, {})
        assert commands.from_list(commands.to_list(command)) == command
