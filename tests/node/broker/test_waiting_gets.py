"""Gets that wait: in order, as many as there are messages, and no longer than they said."""

from __future__ import annotations

import pytest

from node.broker import limits
from node.broker.waiting_gets import WaitingGets


class Scene:
    """Time, queues and what was called."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ready: dict[str, int] = {}
        self.called: list[str] = []
        self.gone: set[str] = set()
        self.gets = WaitingGets(lambda: self.now, lambda queue: self.ready.get(queue, 0))

    def ask(self, name: str) -> bool:
        """Ask again, unless gone."""
        if name in self.gone:
            return False
        self.called.append(f"{name} again")
        return True

    def wait(self, name: str, wait_ms: int, queue: str = "q", *, rested: bool = True) -> bool:
        """Begin the wait of a get, or continue it."""
        return self.gets.add(
            queue,
            self.gets.deadline(wait_ms),
            lambda: self.ask(name),
            lambda: self.called.append(f"{name} gives up"),
            rested=rested,
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_first_to_wait_is_the_first_to_ask_again(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        assert scene.wait(name, 1000)
    scene.ready["q"] = 2
    scene.gets.look()
    assert scene.called == ["a again", "b again"]


def test_who_has_gone_uses_up_no_message(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        assert scene.wait(name, 1000)
    scene.gone = {"a"}
    scene.ready["q"] = 1
    scene.gets.look()
    assert scene.called == ["b again"]


def test_who_waits_for_another_queue_goes_on_waiting(scene: Scene) -> None:
    scene.wait("a", 1000, "other")
    scene.ready["q"] = 5
    scene.gets.look()
    assert scene.called == []


def test_no_get_waits_longer_than_its_limit(scene: Scene) -> None:
    scene.wait("short", 100)
    scene.wait("long", 1000)
    scene.now += 0.5
    scene.gets.expire()
    assert scene.called == ["short gives up"]
    scene.now += 0.6
    scene.gets.expire()
    assert scene.called == ["short gives up", "long gives up"]
    scene.gets.look()


def test_a_get_without_success_rests_until_the_next_look_of_the_clock(scene: Scene) -> None:
    scene.ready["q"] = 1
    assert scene.wait("a", 1000, rested=False)
    scene.gets.look()
    assert scene.called == []
    assert scene.wait("b", 1000)
    scene.gets.look()
    assert scene.called == ["b again"], "what is ready may be for another"
    assert scene.wait("b", 1000, rested=False)
    scene.gets.expire()
    assert scene.called == ["b again", "a again"], "and then they ask in their order"


def test_who_rests_gives_up_in_time_and_counts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GETS_WAITING_MAX", 1)
    assert scene.wait("a", 1000, rested=False)
    assert not scene.wait("b", 1000)
    scene.now += 1
    scene.ready["q"] = 1
    scene.gets.expire()
    assert scene.called == ["a gives up"]
    assert scene.wait("c", 1000, rested=False)


def test_a_get_that_does_not_wait_is_not_taken(scene: Scene) -> None:
    assert not scene.wait("a", 0)


def test_too_many_do_not_wait(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GETS_WAITING_MAX", 1)
    assert scene.wait("a", 1000)
    assert not scene.wait("b", 1000)
