"""Redrive and move: messages sent on to another queue, in steps.

Owns the leader's part of semantics.md section 9: it reads and filters the messages of the queue,
and proposes steps with the cursor of the replicated record. The machine refuses any other cursor,
so each message is moved once, under any leader. The only state here is whether a step is in flight
or waits for the disk: the next leader continues from the record. Must not know how a message is
moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fifo.machine.contract import (
    Command,
    RedriveState,
    Refused,
    Reply,
    Run,
    commands,
    from_list,
    parse_filter,
    replies,
    to_list,
)
from fifo.wire import Code, Frame
from fifo.wire.messages import Move, Ok, Redrive
from fifo.words.settlement import Reason
from node.broker import limits
from node.broker.connections.connection import Binding, Connection
from node.broker.context import Context
from node.broker.deliveries import ReadArea, entries_of, has_headers, line_of
from node.broker.proposals import Proposals, Waiter
from node.broker.reads import WhenCurrent, at_once
from node.broker.requests.dead_letters import Groups
from node.broker.requests.proposer import Proposer, message_of, refuse_no_queue
from node.broker.views import redrive_view
from node.raft import NotCached

_OPTIONS = frozenset(
    ("filter", "limit", "rate_per_s", "reset_counts", "dry_run", "groups", "cancel")
)

Filter = tuple[tuple[str, Any], ...]


class _Reading:
    """Entries of the log that a filter or a grouping has to read: of headers, and of texts."""

    def __init__(self, runs: Sequence[Run], entries_cached: Callable[[], None]) -> None:
        self._runs = runs
        self.entries_cached = entries_cached

    def needs(self) -> Iterable[Sequence[int]]:
        """See `node.raft.FetchWaiter`."""
        return (entries_of(run) for run in self._runs)


@dataclass(slots=True)
class _Running:
    """A redrive that this leader drives. `changing`: starts and stops in flight; `not_before`:
    monotonic seconds at which a paused one is retried."""

    step_in_flight: bool = False
    changing: int = 0
    not_before: float = 0.0
    reading: _Reading | None = None


@dataclass(slots=True, eq=False)
class _DryRun:
    """A count of the messages that a redrive would move, in pieces so that turns stay short."""

    connection: Connection
    correlation: int
    queue: str
    filter: Filter
    left: int | None
    ends: tuple[int, ...]
    cursor: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    groups: Groups | None = None
    messages: int = 0
    reading: _Reading | None = None


class Redrives:
    """Handler of redrives, dry runs and moves, and their driver while this node leads."""

    def __init__(
        self,
        context: Context,
        proposals: Proposals,
        proposer: Proposer,
        when_current: WhenCurrent,
    ) -> None:
        self._machine = context.host.machine
        self._read_area = context.host.read_area
        self._raft = context.raft
        self._clocks = context.clocks
        self._proposals = proposals
        self._proposer = proposer
        self._when_current = when_current
        self._running: dict[str, _Running] = {}
        self._dry_runs: list[_DryRun] = []

    def begin(self) -> None:
        """Continue the redrives that run according to the state."""
        for name in self._machine.running_redrives():
            self._running[name] = _Running()

    def stop(self) -> None:
        """Cancel reads of the log: the term is over, and the next leader continues."""
        waiting: list[_Running | _DryRun] = [*self._running.values(), *self._dry_runs]
        for one in waiting:
            if one.reading is not None:
                self._raft.drop_fetch(one.reading)

    # --- requests ---------------------------------------------------------------------------------

    def redrive(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Start or cancel a redrive, or count in a dry run."""
        message = message_of(frame, Redrive)
        options = message.options or {}
        unknown = options.keys() - _OPTIONS
        if unknown:
            text = (
                f"unknown redrive option {min(map(str, unknown))[:40]!r}: use"
                f" {', '.join(sorted(_OPTIONS))}"
            )
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
        elif self._proposer.lacks_queue(connection, frame.correlation, message.queue):
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
                count = at_once(
                    partial(
                        self._dry_run,
                        connection,
                        frame,
                        command,
                        groups=bool(options.get("groups")),
                    )
                )
                self._when_current(connection, frame, count)
            else:
                self._change(connection, frame, message.queue, command)

    def _change(self, connection: Connection, frame: Frame, queue: str, command: Command) -> None:
        """Propose a start or stop, and answer with the redrive's state after it."""
        running = self._running.setdefault(queue, _Running())

        def decided() -> None:
            running.changing -= 1

        def answer(reply: Reply) -> None:
            view = redrive_view(self._machine.redrive(queue))
            connection.send(Ok(view), frame.correlation)
            running.not_before = 0.0
            self._step(queue, running)

        # A step of one redrive must not land after the start of another in the log, where its
        # cursor could match by chance: so no step is proposed until this is decided.
        if self._proposer.ask(connection, frame, command, answer, decided=decided):
            running.changing += 1

    def _dry_run(
        self, connection: Connection, frame: Frame, command: commands.Redrive, *, groups: bool
    ) -> None:
        """Begin to count; answered when every message now in the queue has been examined."""
        correlation = frame.correlation
        ends = self._machine.ends(command.queue)
        target = command.target
        if ends is None:
            refuse_no_queue(connection, correlation, command.queue)
        elif len(self._dry_runs) >= limits.DRY_RUNS_MAX:
            text = f"this node already has its maximum of {limits.DRY_RUNS_MAX} dry runs"
            connection.refuse(correlation, Code.OVERLOADED, text)
        elif target is not None and not self._machine.has_queue(target):
            refuse_no_queue(connection, correlation, target)
        else:
            try:
                from_list(to_list(command))
                chosen = parse_filter(command.filter)
            except ValueError as error:
                connection.refuse(correlation, Code.INVALID_ARGUMENT, str(error))
                return
            run = _DryRun(connection, correlation, command.queue, chosen, command.limit, ends)
            run.groups = Groups(self._read_area) if groups else None
            self._dry_runs.append(run)

    def move(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Move ready messages from the front, in steps, but no more than are ready now."""
        message = message_of(frame, Move)
        if self._proposer.lacks_queue(connection, frame.correlation, message.queue):
            return
        left = min(message.limit, max(self._machine.ready(message.queue), 1))
        moved = 0

        def step() -> None:
            count = min(left, limits.MOVE_MESSAGES)
            command = commands.Move(message.queue, message.target, count)
            self._proposer.ask(connection, frame, command, answer, continues=moved > 0)

        def answer(reply: Reply) -> None:
            nonlocal left, moved
            assert isinstance(reply, replies.Moved)
            full_step = reply.messages == min(left, limits.MOVE_MESSAGES)
            left -= reply.messages
            moved += reply.messages
            # Fewer than asked for: the queue is empty, or the target takes no more.
            if full_step and left > 0 and self._machine.takes_more(message.target):
                if connection.open:
                    step()
                return
            connection.send(Ok({"messages": moved}), frame.correlation)

        step()

    # --- the leader's steps -----------------------------------------------------------------------

    def look(self) -> None:
        """Advance every redrive and dry run that is due, within the bound of one look."""
        left = limits.REDRIVE_LOOK_MESSAGES
        for name in list(self._running):
            if left <= 0:
                return
            running = self._running.pop(name)
            # Move it to the end: the next look begins with those that this one did not reach.
            self._running[name] = running
            left -= self._step(name, running)
        while self._dry_runs and left > 0:
            run = self._dry_runs.pop(0)
            most = min(left, _most(run.filter, groups=run.groups is not None))
            left -= most
            if run.connection.open:
                self._dry_runs.append(run)
                if run.reading is None:
                    self._count(run, most)
            elif run.reading is not None:
                self._raft.drop_fetch(run.reading)

    def _step(self, name: str, running: _Running) -> int:
        """Choose and propose the next step if it is due; return the number of messages examined."""
        redrive = self._machine.running_redrive(name)
        if running.step_in_flight or running.changing or running.reading is not None:
            return 0
        if redrive is None:
            self._running.pop(name, None)
            return 0
        if (
            self._clocks.cluster.now_ms() < redrive.next_ms
            or self._clocks.now() < running.not_before
        ):
            return 0
        found, until = self._machine.redrive_candidates(name, _most(redrive.filter))
        try:
            chosen, until, looked = self._choose(redrive, found, until)
        except NotCached:
            self._read(running, found, partial(self._step_on, name, running))
            return 0
        command = commands.RedriveStep(name, redrive.cursor, until, tuple(chosen))
        running.step_in_flight = True

        def answer(reply: Reply) -> None:
            running.step_in_flight = False
            now = self._machine.running_redrive(name)
            if now is not None and now.status == "paused":
                running.not_before = self._clocks.now() + limits.REDRIVE_PAUSED_SECONDS
            # A refused step is retried by a later look: at once, it would be refused again.
            if self._running.get(name) is running and not isinstance(reply, Refused):
                self._step(name, running)

        def lost(outcome: object) -> None:
            running.step_in_flight = False

        self._proposals.propose_command(command, Waiter(answer, lost=lost))
        return looked

    def _read(
        self,
        one: _Running | _DryRun,
        found: list[tuple[int, Run]],
        then: Callable[[], object],
    ) -> None:
        """Read the entries of the next messages, and call `then` afterwards."""

        def go_on() -> None:
            one.reading = None
            then()

        one.reading = _Reading([run for _, run in found], go_on)
        self._raft.fetch(one.reading)

    def _choose(
        self, redrive: RedriveState, found: list[tuple[int, Run]], until: int
    ) -> tuple[list[int], int, int]:
        """(positions that match, the `until` of the step, messages examined), as far as their
        entries are in memory. Raises `NotCached` if that of the first is not."""
        room = limits.REDRIVE_MESSAGES
        if redrive.rate_per_s is not None:
            room = min(room, max(1, int(redrive.rate_per_s * limits.REDRIVE_RATE_SECONDS)))
        if redrive.limit is not None:
            room = min(room, redrive.limit - redrive.moved)
        wall_ms = self._clocks.wall_ms()
        chosen: list[int] = []
        for looked, (position, run) in enumerate(found):
            try:
                fits = matches(redrive.filter, run, wall_ms, self._read_area)
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
        """Continue a redrive, unless it has ended while its entries were read."""
        if self._running.get(name) is running:
            self._step(name, running)

    def _count(self, run: _DryRun, most: int) -> None:
        """Examine one piece of a dry run; answer after the last."""
        found, until = self._machine.standing(run.queue, run.cursor, run.ends, most)
        wall_ms = self._clocks.wall_ms()
        for looked, (position, one) in enumerate(found):
            if run.left is not None and run.messages >= run.left:
                break
            try:
                fits = matches(run.filter, one, wall_ms, self._read_area)
                if fits and run.groups is not None:
                    run.groups.add(one)
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
        result: dict[str, Any] = {"dry_run": True, "messages": run.messages}
        result["sources"] = run.sources
        if run.groups is not None:
            result["groups"] = run.groups.listed()
        run.connection.send(Ok(result), run.correlation)


_READ = frozenset(("headers", "stack_line"))
"""Filters whose values may lie in the log."""


def _most(chosen: Filter, *, groups: bool = False) -> int:
    """Maximum number of messages to examine in one step."""
    if groups or any(name in _READ for name, _ in chosen):
        return limits.REDRIVE_HEADERS_MESSAGES
    return limits.REDRIVE_MESSAGES


def matches(chosen: Filter, run: Run, wall_ms: int, read: ReadArea) -> bool:
    """Whether a message (a run of one) matches the filter.

    The age and attempts of a dead letter are those of its death: the time since then, and its
    deliveries until then. Those of any other message are its own.
    """
    letter = run.dead_letter
    for name, wanted in chosen:
        if name == "reason":
            fits = letter is not None and Reason(letter.reason).name.lower() == wanted
        elif name == "source":
            fits = letter is not None and letter.source == wanted
        elif name == "exception_type":
            fits = letter is not None and (letter.exception_type or "") == wanted
        elif name == "stack_line":
            fits = letter is not None and line_of(letter, read) == wanted
        elif name == "older_than_ms":
            since_ms = run.published_wall_ms if letter is None else letter.died_wall_ms
            fits = wall_ms - since_ms >= wanted
        elif name == "min_attempts":
            # A run holds the number of the attempt that a delivery now would be.
            own = 0 if run.attempts is None else run.attempts[0] - 1
            fits = (own if letter is None else letter.attempts) >= wanted
        else:
            fits = has_headers(run, dict(wanted), read)
        if not fits:
            return False
    return True
