"""Redrive and move: messages that somebody sends to another queue, a step at a time.

Owns the leader's part of semantics.md section 9: it reads and filters what stands in the queue, and
proposes steps with the cursor of the replicated record; the machine refuses another cursor, so each
message is moved once, whoever leads. Nothing of a redrive is kept here but whether a step is on its
way, or waits for the disk: the next leader goes on from the record. Must not know how a message is
moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fifo.machine import commands, queries, replies
from fifo.machine.effects import Run
from fifo.machine.replies import Refused, Reply
from fifo.machine.state.records import RedriveState
from fifo.machine.verbs.redrive import parse_filter
from fifo.wire import Code, Frame
from fifo.wire.columns import ColumnError, decode_headers
from fifo.wire.messages import Message, Move, Ok, Redrive
from fifo.words.settlement import Reason
from node.broker import limits
from node.broker.connections.connection import Connection
from node.broker.connections.sessions import Session
from node.broker.deliveries import ReadArea
from node.broker.machine_host import MachineHost
from node.broker.proposals import Proposals, Waiter
from node.broker.requests.queries import redrive_view
from node.broker.requests.requests import Handler, Requests
from node.raft import FetchWaiter, NotCached

_OPTIONS = frozenset(("filter", "limit", "rate_per_s", "reset_counts", "dry_run", "cancel"))

Filter = tuple[tuple[str, Any], ...]


class _Reading:
    """Entries that a filter has to look into."""

    def __init__(self, runs: Sequence[Run], came: Callable[[], None]) -> None:
        self._runs = runs
        self.came = came

    def needs(self) -> Iterable[Sequence[int]]:
        """See `node.raft.FetchWaiter`."""
        return ([run.index] for run in self._runs)


@dataclass(slots=True)
class _Running:
    """A redrive that this leader drives. `not_before`: seconds, of one that is paused."""

    on_its_way: bool = False
    changing: int = 0
    not_before: float = 0.0
    reading: _Reading | None = None


@dataclass(slots=True, eq=False)
class _DryRun:
    """A count of what a redrive would move, made in pieces so that no turn gets long."""

    connection: Connection
    correlation: int
    queue: str
    filter: Filter
    left: int | None
    ends: tuple[int, ...]
    cursor: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    reading: _Reading | None = None


class Redrives:
    """All redrives, dry runs and moves of a leader."""

    def __init__(
        self,
        host: MachineHost,
        proposals: Proposals,
        requests: Requests,
        *,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        may_answer: Callable[[], bool],
        fetch: Callable[[FetchWaiter], None],
        drop_fetch: Callable[[FetchWaiter], None],
    ) -> None:
        """`now_ms` is cluster time, `wall_ms` the clock by which a message's age is told; `fetch`
        has entries read and tells, `drop_fetch` ends that."""
        self._host = host
        self._proposals = proposals
        self._requests = requests
        self._now = now
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._may_answer = may_answer
        self._fetch = fetch
        self._drop_fetch = drop_fetch
        self._running: dict[str, _Running] = {}
        self._dry_runs: list[_DryRun] = []
        self.handlers: dict[type[Message], Handler] = {Redrive: self.redrive, Move: self.move}

    def begin(self) -> None:
        """A term begins here: go on with what the state says is running."""
        self.clear()
        for name in self._host.redrives():
            self._running[name] = _Running()

    def clear(self) -> None:
        """Leadership is lost: the next leader goes on, and dry runs are asked again."""
        waiting: list[_Running | _DryRun] = [*self._running.values(), *self._dry_runs]
        for one in waiting:
            if one.reading is not None:
                self._drop_fetch(one.reading)
        self._running.clear()
        self._dry_runs.clear()

    # --- requests ---------------------------------------------------------------------------------

    def redrive(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Start, cancel, or only count."""
        message = frame.message
        assert isinstance(message, Redrive)
        options = message.options or {}
        unknown = options.keys() - _OPTIONS
        if unknown:
            text = f"a redrive has no option {min(map(str, unknown))[:40]!r}"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
        elif self._requests.no_queue(connection, frame.correlation, message.queue):
            return
        elif options.get("cancel"):
            self._change(connection, frame, message.queue, commands.RedriveStop(message.queue))
        else:
            command = commands.Redrive(
                message.queue,
                message.target,
                options.get("filter") or {},
                options.get("limit"),
                options.get("rate_per_s"),
                options.get("reset_counts", True),
            )
            if options.get("dry_run"):
                self._dry_run(connection, frame, command)
            else:
                self._change(connection, frame, message.queue, command)

    def _change(
        self, connection: Connection, frame: Frame, queue: str, command: commands.Command
    ) -> None:
        """Propose a start or stop, and answer with how the redrive is then."""
        running = self._running.setdefault(queue, _Running())

        def decided() -> None:
            running.changing -= 1

        def answer(reply: Reply) -> None:
            found = self._host.queue(queue)
            view = None if found is None else redrive_view(found.redrive)
            connection.send(Ok(view), frame.correlation)
            running.not_before = 0.0
            self._step(queue, running)

        # What was chosen for one redrive must not come behind the start of another in the log,
        # where its cursor could fit by chance: so nothing is chosen until this is decided.
        if self._requests.ask(connection, frame, command, answer, decided=decided):
            running.changing += 1

    def _dry_run(self, connection: Connection, frame: Frame, command: commands.Redrive) -> None:
        """Begin to count; answered when all that stands in the queue now was looked at."""
        correlation = frame.correlation
        queue = self._host.queue(command.queue)
        target = command.target
        if not self._may_answer() or queue is None:
            text = "this leader cannot be sure of its queues now"
            connection.refuse(correlation, Code.NOT_NOW, text)
        elif len(self._dry_runs) >= limits.DRY_RUNS_MAX:
            text = f"{limits.DRY_RUNS_MAX} dry runs are under way on this node"
            connection.refuse(correlation, Code.OVERLOADED, text)
        elif target is None or not self._requests.no_queue(connection, correlation, target):
            try:
                commands.from_list(commands.to_list(command))
                chosen = parse_filter(command.filter)
            except ValueError as error:
                connection.refuse(correlation, Code.INVALID_ARGUMENT, str(error))
                return
            run = _DryRun(
                connection, correlation, queue.name, chosen, command.limit, tuple(queue.tails)
            )
            self._dry_runs.append(run)

    def move(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Move ready messages from the front, in steps, but no more than are ready now."""
        message = frame.message
        assert isinstance(message, Move)
        if self._requests.no_queue(connection, frame.correlation, message.queue):
            return
        left = min(message.limit, max(self._host.ready(message.queue), 1))
        moved = 0

        def step() -> None:
            count = min(left, limits.MOVE_MESSAGES)
            command = commands.Move(message.queue, message.target, count)
            self._requests.ask(connection, frame, command, answer)

        def answer(reply: Reply) -> None:
            nonlocal left, moved
            assert isinstance(reply, replies.Moved)
            full_step = reply.messages == min(left, limits.MOVE_MESSAGES)
            left -= reply.messages
            moved += reply.messages
            # Fewer than asked for: the queue is empty, or the target takes no more.
            if full_step and left > 0 and self._has_room(message.target):
                if connection.open:
                    step()
                return
            connection.send(Ok({"messages": moved}), frame.correlation)

        step()

    def _has_room(self, name: str) -> bool:
        """Whether the next step of a move could move anything."""
        queue = self._host.queue(name)
        if queue is None:
            return False
        spec = queue.spec
        if spec.overflow != "reject":
            return True
        full = spec.max_length is not None and queue.total >= spec.max_length
        return not full and (spec.max_bytes is None or queue.bytes < spec.max_bytes)

    # --- the leader's steps -----------------------------------------------------------------------

    def look(self) -> None:
        """Take every redrive and dry run that is due a step further, within the bound of a look."""
        left = limits.REDRIVE_LOOK_MESSAGES
        for name in list(self._running):
            if left <= 0:
                return
            running = self._running.pop(name)
            # To the end of the line: the next look begins with those that this one did not reach.
            self._running[name] = running
            left -= self._step(name, running)
        while self._dry_runs and left > 0:
            run = self._dry_runs.pop(0)
            most = min(left, _most(run.filter))
            left -= most
            if run.connection.open:
                self._dry_runs.append(run)
                if run.reading is None:
                    self._count(run, most)
            elif run.reading is not None:
                self._drop_fetch(run.reading)

    def _step(self, name: str, running: _Running) -> int:
        """Choose and propose the next step, where it is time for it; how many were looked at."""
        redrive = self._host.redrive(name)
        if running.on_its_way or running.changing or running.reading is not None:
            return 0
        if redrive is None:
            self._running.pop(name, None)
            return 0
        if self._now_ms() < redrive.next_ms or self._now() < running.not_before:
            return 0
        found, until = self._host.machine.redrive_candidates(name, _most(redrive.filter))
        try:
            chosen, until, looked = self._choose(redrive, found, until)
        except NotCached:
            self._read(running, found, partial(self._step_on, name, running))
            return 0
        command = commands.RedriveStep(name, redrive.cursor, until, tuple(chosen))
        running.on_its_way = True

        def answer(reply: Reply) -> None:
            running.on_its_way = False
            now = self._host.redrive(name)
            if now is not None and now.status == "paused":
                running.not_before = self._now() + limits.REDRIVE_PAUSED_SECONDS
            # What was refused is looked at again in a while: it would be refused at once again.
            if self._running.get(name) is running and not isinstance(reply, Refused):
                self._step(name, running)

        def lost(outcome: object) -> None:
            running.on_its_way = False

        self._proposals.propose(command, Waiter(answer, lost=lost))
        return looked

    def _read(
        self, one: _Running | _DryRun, found: list[tuple[int, Run]], came: Callable[[], object]
    ) -> None:
        """Go on when the entries of what comes next were read."""

        def go_on() -> None:
            one.reading = None
            came()

        one.reading = _Reading([run for _, run in found], go_on)
        self._fetch(one.reading)

    def _choose(
        self, redrive: RedriveState, found: list[tuple[int, Run]], until: int
    ) -> tuple[list[int], int, int]:
        """(positions that match, the `until` of the step, messages looked at); as far as their
        entries are at hand. `NotCached` where the first's is not."""
        room = limits.REDRIVE_MESSAGES
        if redrive.rate_per_s is not None:
            room = min(room, max(1, int(redrive.rate_per_s * limits.REDRIVE_RATE_SECONDS)))
        if redrive.limit is not None:
            room = min(room, redrive.limit - redrive.moved)
        wall_ms = self._wall_ms()
        chosen: list[int] = []
        for looked, (position, run) in enumerate(found):
            try:
                fits = matches(redrive.filter, run, wall_ms, self._host.read_area)
            except NotCached:
                if not looked:
                    raise
                return chosen, position, looked
            if fits:
                chosen.append(position)
                if len(chosen) >= room:
                    return chosen, position + 1, len(found)
        return chosen, until, len(found)

    def _step_on(self, name: str, running: _Running) -> None:
        """What a redrive waited for is at hand."""
        if self._running.get(name) is running:
            self._step(name, running)

    def _count(self, run: _DryRun, most: int) -> None:
        """One piece of a dry run, or the end of it."""
        state = self._host.machine.state
        found, until = queries.standing(state, run.queue, run.cursor, run.ends, most)
        wall_ms = self._wall_ms()
        for looked, (position, one) in enumerate(found):
            if run.left is not None and run.messages >= run.left:
                break
            try:
                fits = matches(run.filter, one, wall_ms, self._host.read_area)
            except NotCached:
                run.cursor = position
                self._read(run, found[looked:], partial(self._count, run, most))
                return
            if fits:
                run.messages += 1
                letter = one.dead_letter
                if letter is not None:
                    run.sources[letter.source] = run.sources.get(letter.source, 0) + 1
        run.cursor = until
        if len(found) >= most and (run.left is None or run.messages < run.left):
            return
        self._dry_runs.remove(run)
        result = {"dry_run": True, "messages": run.messages, "sources": run.sources}
        run.connection.send(Ok(result), run.correlation)


def _most(chosen: Filter) -> int:
    """How many messages to look at in one step."""
    if any(name == "headers" for name, _ in chosen):
        return limits.REDRIVE_HEADERS_MESSAGES
    return limits.REDRIVE_MESSAGES


def matches(chosen: Filter, run: Run, wall_ms: int, read: ReadArea) -> bool:
    """Whether a message (a run of one) is what the filter means.

    A dead letter's age and attempts are those of its death: when it died, and how often it had been
    delivered by then. Of another message they are its own.
    """
    letter = run.dead_letter
    for name, wanted in chosen:
        if name == "reason":
            fits = letter is not None and Reason(letter.reason).name.lower() == wanted
        elif name == "source":
            fits = letter is not None and letter.source == wanted
        elif name == "older_than_ms":
            since_ms = run.published_wall_ms if letter is None else letter.died_wall_ms
            fits = wall_ms - since_ms >= wanted
        elif name == "min_attempts":
            # What a run says is the attempt that a delivery now would be.
            own = 0 if run.attempts is None else run.attempts[0] - 1
            fits = (own if letter is None else letter.attempts) >= wanted
        else:
            headers = _headers(run, read)
            fits = all(headers.get(header) == value for header, value in wanted)
        if not fits:
            return False
    return True


def _headers(run: Run, read: ReadArea) -> dict[str, str]:
    """The headers of a message, from the log."""
    blob = run.headers
    if blob is None:
        return {}
    area = read(run.index)
    try:
        return decode_headers(area[blob.blob_at : blob.blob_at + blob.blob_bytes])
    except ColumnError:
        return {}  # A stranger's client sent what nobody can read: it equals nothing.
