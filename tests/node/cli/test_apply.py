"""`fifo apply` and `fifo export`: a file of queues, its plan, and both on a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fifo
from fifo.words.options import Kind, Option
from fifo.words.queue_options import QUEUE_OPTIONS
from node.cli import definitions
from node.cli.apply import plan
from node.cli.definitions import DEFAULTS, Definition
from node.cli.errors import USAGE, CliError
from tests.support.cluster import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.node.cli.local import Done

FILE = """
[[queue]]
name = "orders"
lock = "45s"
max_deliveries = 5
dead_letter = "orders.dlq"
nack_backoff = "exponential:1s..60s*2"
max_bytes = "64MiB"
count_timeouts = false

[[queue]]
name = "orders.dlq"
ttl = "30d"
"""


def made(name: str, **wire: Any) -> Definition:
    return Definition(name, {**DEFAULTS, **wire})


def read(folder: Path, text: str) -> list[Definition]:
    path = folder / "queues.toml"
    path.write_text(text)
    return definitions.read(path)


def lines(
    wanted: list[Definition], existing: list[Definition], *, prune: bool = False
) -> list[str]:
    there = {one.name: one for one in existing}
    steps = plan(wanted, there, dict.fromkeys(there, 3), prune=prune)
    return [step.line for step in steps]


def test_a_file_is_read_with_its_units_and_every_option_has_a_value(tmp_path: Path) -> None:
    orders, letters = read(tmp_path, FILE)
    assert (orders.name, orders.wire["lock_ms"], orders.wire["max_bytes"]) == (
        "orders",
        45_000,
        64 << 20,
    )
    assert orders.wire["count_timeouts"] is False
    assert letters.wire == {**DEFAULTS, "ttl_ms": 30 * 86_400_000}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[queue]]\nlock = '1s'\n", "[[queue]] 1 name: is missing"),
        ("[[queue]]\nname = 'q'\nlook = '1s'\n", "[[queue]] 1 look: unknown key; did you mean"),
        (
            "[[queue]]\nname = 'q'\nlock = 30\n",
            '1 lock: 30 must be written with its unit, as in "30s"',
        ),
        ("[[queue]]\nname = 'q'\nlock = 'soon'\n", "[[queue]] 1 lock: 'soon' is not a duration"),
        ("[[queue]]\nname = 'q'\nlock = '1ms'\n", "[[queue]] 1 lock: "),
        ("[[queue]]\nname = 'q'\nmax_length = 'x'\n", "[[queue]] 1 max_length: "),
        ("[[queue]]\nname = 'q'\noverflow = 'x'\n", "[[queue]] 1 overflow: "),
        ("[[queue]]\nname = 'q'\nnack_backoff = 'x'\n", "[[queue]] 1 nack_backoff: "),
        ("[[queue]]\nname = 'q'\n[[queue]]\nname = 'q'\n", "queue 'q' has 2 [[queue]] sections"),
        ("[queue]\nname = 'q'\n", "queue: must be written as [[queue]] sections"),
        ("[[queues]]\nname = 'q'\n", "queues: unknown key; did you mean queue?"),
        ("[[queue]\n", "not valid TOML: "),
    ],
)
def test_a_bad_file_is_refused_with_its_section_and_key(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(CliError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_every_wrong_section_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(CliError) as caught:
        read(tmp_path, "[[queue]]\nname = 'a'\nx = 1\n[[queue]]\nname = 'b'\ny = 1\n")
    assert "[[queue]] 1 x: " in str(caught.value)
    assert "[[queue]] 2 y: " in str(caught.value)


NAMES = st.text("abc .é\"'\\#", max_size=9).map(lambda text: f"q{text}")


def values_of(option: Option) -> st.SearchStrategy[Any]:
    """Values that this option may have, on the wire."""
    match option.kind:
        case Kind.FLAG:
            return st.booleans()
        case Kind.CHOICE:
            return st.sampled_from(option.choices)
        case Kind.QUEUE:
            return NAMES
        case Kind.BACKOFF:
            return st.sampled_from(["fixed:3s", "exponential:1s..1m*2", "table:1s,5s"])
        case _:
            return st.integers(max(option.low, 1), min(option.high, 1 << 40))


SPECS = st.fixed_dictionaries(
    {},
    optional={option.wire_name: values_of(option) for option in QUEUE_OPTIONS},
)


@pytest.mark.slow
@given(st.dictionaries(NAMES, SPECS, max_size=4))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, specs: dict[str, Any]
) -> None:
    known = [made(name, **definitions.canonical(wire)) for name, wire in specs.items()]
    path = tmp_path_factory.mktemp("written") / "queues.toml"
    path.write_text(definitions.write(known), encoding="utf-8")
    assert definitions.read(path) == known


def test_the_plan_declares_updates_and_leaves_alone_what_is_as_wanted() -> None:
    wanted = [made("a", lock_ms=45_000), made("b", max_deliveries=7), made("c")]
    existing = [made("b", max_deliveries=3, ttl_ms=1_000), made("c"), made("d")]
    assert lines(wanted, existing) == [
        "+ declare a lock=45s",
        "~ update b max_deliveries: 3 -> 7, ttl: 1s -> none",
    ]
    assert lines(wanted, wanted) == []
    assert lines(wanted, existing, prune=True)[-1] == "- delete d (3 messages)"


def test_a_dead_letter_queue_comes_first_and_goes_last() -> None:
    wanted = [made("a", dead_letter="b"), made("b", dead_letter="c"), made("c", ttl_ms=1)]
    assert [line.split()[2] for line in lines(wanted, [])] == ["c", "b", "a"]
    assert [line.split()[2] for line in lines([], wanted, prune=True)] == ["a", "b", "c"]
    # One that a wanted queue names, and the file does not have, stays as it is.
    assert lines([wanted[0]], wanted, prune=True) == ["- delete c (3 messages)"]


def test_what_cannot_change_stops_the_plan_before_any_change() -> None:
    with pytest.raises(CliError, match=r"b: ordering is none, and cannot become key .* rename it"):
        lines([made("a"), made("b", ordering="key")], [made("b")])
    with pytest.raises(CliError, match="form a cycle: a -> b -> a"):
        lines([made("a", dead_letter="b"), made("b", dead_letter="a")], [])


@pytest.mark.cluster
async def test_a_file_is_applied_once_and_exported_as_it_was(
    cli: Callable[..., Done], tmp_path: Path
) -> None:
    async with running(tmp_path / "nodes", 1) as cluster:
        url = f"fifo://{(await cluster.leader()).me.client}"

        async def typed(*words: str) -> Done:
            return await asyncio.to_thread(cli, *words, "--url", url)

        path = tmp_path / "queues.toml"
        path.write_text(FILE)
        done = await typed("apply", str(path), "--dry-run")
        assert (done.code, len(done.out.splitlines())) == (0, 2)
        assert done.err == "2 changes would be made\n"
        async with fifo.connect(url) as client:
            assert await client.queues() == []
            assert (await typed("apply", str(path))).code == 0
            found = await client.queue("orders")
            assert (found.spec["lock_ms"], found.spec["dead_letter"]) == (45_000, "orders.dlq")
            assert (await client.queue("orders.dlq")).spec["ttl_ms"] == 30 * 86_400_000
            assert (await typed("apply", str(path))).out == "nothing to change\n"

            exported = await typed("export")
            again = tmp_path / "again.toml"
            again.write_text(exported.out)
            assert (await typed("apply", str(again), "--json")).json == {
                "applied": True,
                "steps": [],
            }
            await typed("export", "orders", "--out", str(again))
            assert [one.name for one in definitions.read(again)] == ["orders"]

            # Another file: an option less, a queue more, and one that the file lacks.
            await client.declare(fifo.QueueSpec("old"))
            await client.publish("old", b"lost")
            path.write_text(FILE.replace('lock = "45s"\n', "") + "[[queue]]\nname = 'new'\n")
            asked = await typed("apply", str(path), "--prune")
            assert asked.code == USAGE
            assert "1 queue will be deleted, with 1 messages; confirm with --yes" in asked.line
            assert sorted(one.name for one in await client.queues()) == [
                "old",
                "orders",
                "orders.dlq",
            ]
            done = await typed("apply", str(path), "--prune", "--yes", "--json")
            assert [(step["action"], step["queue"]) for step in done.json["steps"]] == [
                ("update", "orders"),
                ("declare", "new"),
                ("delete", "old"),
            ]
            assert (await client.queue("orders")).spec["lock_ms"] == DEFAULTS["lock_ms"]

            # The cluster refuses the second of two: what was done before is said.
            path.write_text(
                "[[queue]]\nname = 'fine'\n[[queue]]\nname = 'q'\nmax_lock = '1s'\nlock = '1m'\n"
            )
            failed = await typed("apply", str(path))
            assert failed.code == 1
            assert "1 changes were made before it, 0 not" in failed.err
