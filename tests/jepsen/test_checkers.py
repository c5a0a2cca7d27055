"""Every rule on the shared histories: good ones keep all, each bad one breaks its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jepsen import checkers, stories
from tests.jepsen.checkers.linearizable import Operation, possible
from tests.jepsen.checkers.sorting import NEVER
from tests.jepsen.history import History, load, merge
from tests.jepsen.story import Story

EXPECTED = json.loads((stories.FOLDER / "expected.json").read_text())


def found_in(path: Path) -> Iterator[tuple[str, str]]:
    for violation in checkers.find(load(path)):
        yield violation.rule, violation.subject


def named(pattern: str) -> list[Path]:
    return sorted(stories.FOLDER.glob(pattern))


@pytest.mark.parametrize("path", named("good-*.jsonl"), ids=lambda path: path.stem)
def test_a_good_history_breaks_no_rule(path: Path) -> None:
    checkers.check(load(path))


@pytest.mark.parametrize("path", named("bad-*.jsonl"), ids=lambda path: path.stem)
def test_a_bad_history_breaks_its_rule(path: Path) -> None:
    rule = path.stem.split("-")[1]
    found = sorted(set(found_in(path)))
    assert rule in {broken for broken, _ in found}
    assert [list(one) for one in found] == EXPECTED[path.name]


@pytest.mark.parametrize("path", named("good-*.jsonl"), ids=lambda path: path.stem)
def test_a_good_history_is_one_that_locks_can_have(path: Path) -> None:
    assert not checkers.search(load(path))


@pytest.mark.parametrize(
    "name",
    [
        "back-after-its-ack",
        "back-after-its-termination",
        "both-held-it",
        "two-holders",
        "late-nack",
        "old-token-acks",
        "old-token-acks-late",
        "attempt-forgotten",
    ],
)
def test_the_search_alone_finds_an_impossible_lock(name: str) -> None:
    (path,) = (path for path in named("bad-*.jsonl") if path.stem[7:] == name)
    assert [found.rule for found in checkers.search(load(path))] == ["L"]


def test_a_search_may_omit_operations_of_unknown_outcome() -> None:
    take, again = Operation("take", (1, 1), -1, 3, 1), Operation("take", (2, 1), -1, 9, 2)
    ack = Operation("end late", (1, 1), 4, NEVER, optional=True)
    assert possible([take, ack, again])
    assert possible([take, replace(ack, optional=False, end=8), again]) is False


@pytest.mark.slow
def test_a_search_of_six_hundred_operations_is_quick() -> None:
    taken = [Operation("take", (1, n), -1, 10 * n, n) for n in range(1, 151)]
    returned = [Operation("give back", (1, n), 10 * n + 1, 10 * n + 5) for n in range(1, 151)]
    sure = [Operation("holds", (1, n), 10 * n + 1, 10 * n + 1) for n in range(1, 151)]
    lost = [Operation("lost", (1, n), 10 * n + 6, 10 * n + 8) for n in range(1, 151)]
    assert possible(taken + returned + sure + lost)


def test_the_files_are_the_stories() -> None:
    stored = {path.name: path.read_text() for path in stories.FOLDER.glob("*.jsonl")}
    assert stored == stories.files(), "run python -m tests.jepsen.stories"


def test_every_rule_has_a_bad_history() -> None:
    assert {path.stem.split("-")[1] for path in named("bad-*")} == set(checkers.RULES)


def test_a_violation_names_its_rule_and_shows_its_events() -> None:
    story = Story()
    stories.lost(story)
    with pytest.raises(AssertionError, match=r"^seed 7: S1: p1-0: confirmed, and gone") as raised:
        checkers.check(story.events, where="seed 7: ")
    assert "'id': '1.1.1'" in str(raised.value)


def test_what_a_paused_client_had_late_is_not_newer_though_dead_letters_went_back_later() -> None:
    story = Story(traced=False)
    story.publish()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle(consumer=2)
    story.hand_out(transit_s=None)
    story.add("invoke", "redrive", "r1", queue="dead")
    assert checkers.find(story.events) == []


def test_an_answer_to_no_request_is_a_hole() -> None:
    story = Story()
    stories.acked(story)
    events = [one for one in story.events if (one["f"], one["type"]) != ("settle", "invoke")]
    with pytest.raises(ValueError, match=r"a hole: no request of the settlement answered in \{"):
        checkers.find(events)


def test_a_history_is_written_as_json_lines() -> None:
    history = History(lambda: 1.0)
    history.add("invoke", "publish", "p1", body="p1-0")
    first = json.loads(next(history.lines()))
    assert first == {
        "type": "invoke",
        "f": "publish",
        "value": {"body": "p1-0"},
        "process": "p1",
        "time": 1.0,
        "index": 0,
    }


def test_histories_of_several_processes_become_one(tmp_path: Path) -> None:
    """By time; the last line of a process that was killed may be cut."""
    times = iter((1.0, 3.0))
    one, other = History(lambda: next(times)), History(lambda: 2.0)
    for _ in range(2):
        one.add("ok", "holds", "c1")
    other.add("ok", "holds", "c2")
    (tmp_path / "a.jsonl").write_text("\n".join(one.lines()) + '\n{"type":"o')
    (tmp_path / "b.jsonl").write_text("\n".join(other.lines()) + "\n")
    merged = merge(tmp_path.glob("*.jsonl"))
    assert [(event["process"], event["index"]) for event in merged] == [
        ("c1", 0), ("c2", 1), ("c1", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("line", ['{"type":"ok"}', "[]", "{", '{"type":"maybe","f":"x"}'])
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(stories.files()["good-acked.jsonl"] + line + "\n")
    with pytest.raises(ValueError, match=r"history.jsonl:\d+: this is not an event"):
        load(path)
