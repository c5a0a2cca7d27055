"""The messages that a redrive chooses, and when the leader takes it a step further."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from fifo.machine import commands
from fifo.machine.commands import Command, Redrive, RedriveStep, RedriveStop
from fifo.machine.effects import BlobColumn, Run
from fifo.machine.replies import Reply
from fifo.machine.types import DeadLetter
from fifo.machine.verbs.redrive import parse_filter
from fifo.wire import Frame
from fifo.wire.columns import encode_headers
from fifo.wire.messages import Error, Message, Ok
from fifo.wire.messages import Redrive as RedriveFrame
from fifo.words.settlement import Reason
from node.broker import limits
from node.broker.proposals import Waiter
from node.broker.requests.redrives import Redrives, matches
from node.raft import FetchWaiter, NotCached
from tests.support.machine import WALL_EPOCH_MS, Bench

HEADERS = encode_headers({"tenant": "a", "try": "1"})
DIED_MS = 1_000_000


def a_run(*, dead: bool = True, headers: bytes = HEADERS, attempts: int | None = None) -> Run:
    """A message that was published at 900 000 and died at 1 000 000 after three attempts."""
    letter = DeadLetter(
        int(Reason.EXPIRED), None, None, None, None, "orders", None, DIED_MS, (), 3, 2
    )
    return Run(
        index=7,
        count=1,
        bodies_at=0,
        sizes=array("I", [0]),
        bodies_bytes=0,
        keys=None,
        headers=BlobColumn(4, array("I", [len(headers)]), len(headers)) if headers else None,
        producer=1,
        number=1,
        queue_number=1,
        published_wall_ms=900_000,
        priorities=None,
        attempts=None if attempts is None else array("I", [attempts]),
        failures=None,
        dead_letter=letter if dead else None,
    )


@pytest.mark.parametrize(
    ("chosen", "fits"),
    [
        ({}, True),
        ({"reason": "expired"}, True),
        ({"reason": "overflow"}, False),
        ({"source": "orders"}, True),
        ({"source": "order"}, False),
        ({"headers": {"tenant": "a"}}, True),
        ({"headers": {"tenant": "a", "try": "2"}}, False),
        ({"headers": {"absent": ""}}, False),
        ({"older_than_ms": 500}, True),
        ({"older_than_ms": 501}, False),
        ({"min_attempts": 3}, True),
        ({"min_attempts": 4}, False),
        ({"reason": "expired", "source": "elsewhere"}, False),
    ],
)
def test_a_dead_letter_is_chosen_by_everything_that_the_filter_names(
    chosen: dict[str, Any], fits: bool
) -> None:
    def read(index: int) -> memoryview:
        assert index == 7
        return memoryview(b"____" + HEADERS)

    assert matches(parse_filter(chosen), a_run(), DIED_MS + 500, read) is fits


def test_a_message_that_never_died_has_its_own_age_and_attempts_and_no_reason() -> None:
    def read(index: int) -> memoryview:
        raise AssertionError("nothing to read")

    def fits(run: Run, **chosen: object) -> bool:
        return matches(parse_filter(chosen), run, 901_000, read)

    alive = a_run(dead=False, headers=b"")
    assert not fits(alive, reason="expired")
    assert not fits(alive, source="orders")
    assert not fits(alive, headers={"a": "b"})
    assert fits(alive, older_than_ms=1_000)
    assert not fits(alive, older_than_ms=1_001)
    assert not fits(alive, min_attempts=1)
    assert fits(a_run(dead=False, attempts=3), min_attempts=2)
    assert not fits(a_run(dead=False, attempts=3), min_attempts=3)


def test_unreadable_headers_equal_nothing() -> None:
    broken = a_run(headers=b"\xff\xff\xff")
    chosen = parse_filter({"headers": {"a": "b"}})
    assert not matches(chosen, broken, 0, lambda index: memoryview(b"____\xff\xff\xff"))


class Peer:
    """A connection that keeps what it was sent."""

    def __init__(self) -> None:
        self.open = True
        self.sent: list[Message] = []

    def send(self, message: Message, correlation: int) -> None:
        self.sent.append(message)

    def refuse(self, correlation: int, code: str, text: str) -> None:
        self.sent.append(Error(code, text, False))


class Scene:
    """A leader of one machine, whose log takes an entry when the test says so."""

    def __init__(self, letters: int = 10) -> None:
        self.bench = Bench()
        self.at_hand: set[int] | None = None
        self.asked: list[FetchWaiter] = []
        self.now = 100.0
        self.gathered: list[tuple[Command, Callable[[Reply], None]]] = []
        self.bench.declare("q", dead_letter="d")
        self.bench.attach()
        for number in range(letters):
            odd = encode_headers({"odd": str(number % 2)})
            self.bench.publish(1, "q", str(number), headers=[odd])
        self.bench.subscribe(1, "q", prefetch=letters)
        self.bench.terminate(1, (1, letters))
        self.redrives = self.leader()

    def leader(self) -> Redrives:
        """Return the redrives of a new leader of this state."""
        parts: Any = self
        context: Any = SimpleNamespace(
            host=SimpleNamespace(machine=self.bench.machine, read_area=self.read_area),
            raft=SimpleNamespace(fetch=self.asked.append, drop_fetch=self.asked.remove),
            clocks=SimpleNamespace(
                now=lambda: self.now,
                wall_ms=lambda: WALL_EPOCH_MS + self.bench.now,
                cluster=SimpleNamespace(now_ms=lambda: self.bench.now),
            ),
        )
        return Redrives(context, parts, parts, lambda connection, frame, answer: deque(answer, 0))

    def read_area(self, index: int) -> memoryview:
        """Read an area of the log from memory: by default the whole log is there."""
        if self.at_hand is not None and index not in self.at_hand:
            raise NotCached
        return memoryview(self.bench.areas[index])

    def bring(self, groups: int) -> None:
        """Read so much of what is asked for; the rest is not at hand then."""
        asked, self.asked[:] = self.asked[:], []
        for asker in asked:
            self.at_hand = {index for group in islice(asker.needs(), groups) for index in group}
            asker.entries_cached()

    # In place of `Proposals` and `Proposer`.

    def propose_command(self, command: Command, waiter: Waiter) -> None:
        self.gathered.append((command, waiter.answer))

    def ask(
        self,
        connection: object,
        frame: object,
        command: Command,
        answer: Callable[[Reply], None],
        decided: Callable[[], None],
    ) -> bool:
        def replied(reply: Reply) -> None:
            decided()
            answer(reply)

        self.gathered.append((command, replied))
        return True

    def lacks_queue(self, connection: object, correlation: int, queue: str) -> bool:
        return False

    # What a test does.

    def request(self, target: str | None = None, **options: Any) -> Peer:
        peer: Any = Peer()
        session: Any = None
        frame = Frame(RedriveFrame("d", target, options or None), 1)
        self.redrives.redrive(peer, session, frame)
        found: Peer = peer
        return found

    def commit(self) -> list[Command]:
        """Apply what was gathered, then answer: as a turn of the loop does."""
        gathered, self.gathered = self.gathered, []
        replies = self.bench.apply(*[command for command, _ in gathered]) if gathered else []
        for (_, answer), reply in zip(gathered, replies, strict=True):
            answer(reply)
        return [command for command, _ in gathered]

    def steps(self) -> list[RedriveStep]:
        return [command for command, _ in self.gathered if isinstance(command, RedriveStep)]

    @property
    def view(self) -> dict[str, Any]:
        view = self.bench.machine.redrive_of("d")
        assert view is not None
        return view


def test_one_step_is_on_its_way_at_a_time_and_the_next_follows_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REDRIVE_MESSAGES", 4)
    scene = Scene()
    scene.request()
    scene.commit()
    for _ in range(3):
        scene.redrives.look()
    assert [len(step.positions) for step in scene.steps()] == [4]
    sizes = []
    while steps := scene.steps():
        sizes.append(len(steps[0].positions))
        scene.commit()
    assert sizes == [4, 4, 2]
    assert (scene.view["status"], scene.view["moved"]) == ("done", 10)


def test_the_next_leader_goes_on_where_the_last_one_was_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REDRIVE_MESSAGES", 4)
    scene = Scene()
    scene.request()
    scene.commit()
    [lost_in_the_log] = scene.steps()
    scene.gathered.clear()
    scene.redrives = scene.leader()
    scene.redrives.look()
    assert not scene.steps()
    scene.redrives.begin()
    scene.redrives.look()
    scene.commit()
    assert scene.view["moved"] == 4
    scene.bench.apply(lost_in_the_log)
    assert scene.view["moved"] == 4
    while scene.steps():
        scene.commit()
    assert (scene.view["status"], scene.view["moved"]) == ("done", 10)


def test_no_step_is_chosen_while_another_redrive_is_about_to_replace_it() -> None:
    scene = Scene()
    scene.bench.do(commands.Declare("full", {"max_length": 1}))
    scene.bench.publish(1, "full", "in the way")
    scene.request("full")
    scene.commit()
    scene.commit()
    assert (scene.view["status"], scene.view["cursor"]) == ("paused", 0)
    scene.now += limits.REDRIVE_PAUSED_SECONDS
    scene.request(cancel=True)
    scene.request(filter={"reason": "expired"})
    scene.redrives.look()
    assert [type(command) for command in scene.commit()] == [RedriveStop, Redrive]
    while scene.steps():
        scene.commit()
    assert (scene.view["status"], scene.view["moved"]) == ("done", 0)


def test_a_paused_redrive_is_tried_again_after_a_while_and_not_before() -> None:
    scene = Scene(letters=2)
    scene.bench.do(commands.Declare("full", {"max_length": 1}))
    scene.bench.publish(1, "full", "in the way")
    scene.request("full")
    scene.commit()
    scene.commit()
    scene.redrives.look()
    assert not scene.steps()
    scene.now += limits.REDRIVE_PAUSED_SECONDS
    scene.redrives.look()
    assert len(scene.steps()) == 1


def test_a_rate_bounds_each_step_and_the_time_to_the_next() -> None:
    scene = Scene()
    scene.request(rate_per_s=8)
    scene.commit()
    moved, proposed = [], []
    for _ in range(6):
        scene.commit()
        moved.append(scene.view["moved"])
        scene.bench.advance(250)
        scene.redrives.look()
        proposed.append(len(scene.steps()))
    assert moved == [4, 4, 8, 8, 10, 10]
    assert proposed == [0, 1, 0, 1, 0, 0]


def test_a_dry_run_counts_in_pieces_up_to_its_limit_and_logs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REDRIVE_MESSAGES", 4)
    monkeypatch.setattr(limits, "REDRIVE_LOOK_MESSAGES", 4)
    scene = Scene()
    whole, some = scene.request(dry_run=True), scene.request(dry_run=True, limit=3)
    looks = 0
    while not (whole.sent and some.sent):
        scene.redrives.look()
        looks += 1
    assert looks == 4
    assert whole.sent == [Ok({"dry_run": True, "messages": 10, "sources": {"q": 10}})]
    assert some.sent == [Ok({"dry_run": True, "messages": 3, "sources": {"q": 3}})]
    assert not scene.gathered


def test_a_dry_run_ends_with_its_connection() -> None:
    scene = Scene()
    peer = scene.request(dry_run=True)
    peer.open = False
    scene.redrives.look()
    assert not peer.sent


def test_only_so_many_dry_runs_are_under_way() -> None:
    scene = Scene()
    peers = [scene.request(dry_run=True) for _ in range(limits.DRY_RUNS_MAX + 1)]
    assert [peer.sent != [] for peer in peers] == [False] * limits.DRY_RUNS_MAX + [True]
    [refusal] = peers[-1].sent
    assert isinstance(refusal, Error)
    assert refusal.code == "overloaded"


ODD: dict[str, Any] = {"filter": {"headers": {"odd": "1"}}}


def test_a_redrive_goes_as_far_as_its_messages_are_at_hand() -> None:
    scene = Scene()
    scene.at_hand = set()
    scene.request(**ODD)
    scene.commit()
    for _ in range(3):
        scene.redrives.look()
    assert (len(scene.asked), scene.steps()) == (1, []), "it asks once, and waits"
    sizes = []
    while scene.asked or scene.steps():
        scene.bring(3)
        sizes += [len(step.positions) for step in scene.steps()]
        scene.commit()
    assert sizes == [1, 2, 1, 1], "of three messages each, and the last"
    assert (scene.view["status"], scene.view["moved"]) == ("done", 5)


def test_a_redrive_that_waits_for_the_disk_is_cancelled() -> None:
    scene = Scene()
    scene.at_hand = set()
    scene.request(**ODD)
    scene.commit()
    scene.request(cancel=True)
    scene.commit()
    scene.bring(10)
    assert (scene.steps(), scene.asked) == ([], [])
    assert scene.view["status"] == "cancelled"


def test_a_leader_that_resigns_waits_for_no_disk() -> None:
    scene = Scene()
    scene.at_hand = set()
    scene.request(**ODD)
    scene.commit()
    scene.request(dry_run=True, **ODD)
    scene.redrives.look()
    assert len(scene.asked) == 2
    scene.redrives.stop()
    assert scene.asked == []


def test_a_dry_run_counts_dead_letters_that_have_to_be_read() -> None:
    scene = Scene()
    scene.at_hand = set()
    whole = scene.request(dry_run=True, **ODD)
    while not whole.sent:
        scene.redrives.look()
        scene.redrives.look()
        assert len(scene.asked) == 1
        scene.bring(4)
    assert whole.sent == [Ok({"dry_run": True, "messages": 5, "sources": {"q": 5}})]


def test_a_dry_run_whose_connection_ends_during_a_read_is_dropped() -> None:
    scene = Scene()
    scene.at_hand = set()
    peer = scene.request(dry_run=True, **ODD)
    scene.redrives.look()
    peer.open = False
    scene.redrives.look()
    assert scene.asked == []
