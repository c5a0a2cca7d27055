"""The queue machine: one pure, deterministic function from (state, meta, command) to an outcome.

Owns the one `match` over all commands, and what surrounds a batch: cluster time, the checkout after
the last command, and the queues' entries in the index of times. The verbs are in the modules below;
nothing here or there reads a clock, draws a random number, does I/O, or raises on bad input.

Reading order: `types`, `commands`, `effects`, `replies` are the outside; `state/` is what is kept,
with `blocks`, `ready`, `locks`, `ordering` for places and times; `consumers`, `returns`,
`deadletter`, `checkout` move messages between them; `verbs/` has a module per family of commands;
`read_side` answers queries; `contract` lists what other rooms may use. Nothing imports to the right
of itself.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

from fifo.machine import checkout, commands, garbage, limits, running_hash
from fifo.machine.commands import Command
from fifo.machine.effects import Effect
from fifo.machine.read_side import ReadSide
from fifo.machine.record import value
from fifo.machine.replies import Done, Refused, Reply
from fifo.machine.snapshot import format
from fifo.machine.state import ready
from fifo.machine.state.records import VERSION, Frozen, State, Step
from fifo.machine.verbs import (
    durable,
    message,
    publish,
    queues,
    redrive,
    sessions,
    settle,
    subscribe,
    tick,
    users,
)
from fifo.words.codes import RefusalCode

_SKIPPED = -1
"""A fact of the running hash that only a skipped entry has: no count is negative."""


class Meta(NamedTuple):
    """The context of an entry. `area` is its body area: offsets in commands are relative to it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which a meta has no use for
    stamp_ms: int
    wall_ms: int
    area: memoryview


@value
class Outcome:
    """The result of a batch: a reply per command, and the effects of all in order."""

    replies: list[Reply]
    effects: list[Effect]


class Machine(ReadSide):
    """All queues, sessions and consumers of one Raft group."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()
        self.users_revision = self.state.users_revision
        """The number of changes of users; 0 while the log keeps none, and files say who is one.
        Kept beside the state, because each turn of a node looks at it."""

    def __repr__(self) -> str:
        state = self.state
        return (
            f"<machine at {state.cluster_time_ms} ms term {state.term}: "
            f"{len(state.queues)} queues, {len(state.sessions)} sessions, "
            f"{len(state.consumers)} consumers>"
        )

    def apply_batch(self, meta: Meta, batch: Sequence[Command]) -> Outcome:
        """Apply one entry: its commands in order, then what they made possible is handed out."""
        index, stamp_ms, wall_ms, area = meta
        state = self.state
        if stamp_ms > state.cluster_time_ms:  # it never runs backwards
            state.cluster_time_ms = stamp_ms
        step = Step(state, index, wall_ms, area)
        replies: list[Reply] = []
        for command in batch:
            step.budget = limits.STEP_MESSAGES
            replies.append(_apply(step, command))
        facts = [index]
        _finish(step, facts)
        state.running_hash = running_hash.fold(state.running_hash, facts, replies, step.effects)
        if state.remains:
            garbage.let_go(state)
        self.users_revision = state.users_revision
        return Outcome(replies, step.effects)

    def apply(self, meta: Meta, command: Command) -> tuple[Reply, list[Effect]]:
        """Apply a batch of one."""
        outcome = self.apply_batch(meta, (command,))
        return outcome.replies[0], outcome.effects

    def skip(self, index: int, checksum: int) -> None:
        """Pass over an entry whose application raises. Nothing changes but the running hash, which
        tells a replica that skipped it from one that applied it."""
        facts = [index, checksum, _SKIPPED]
        self.state.running_hash = running_hash.fold(self.state.running_hash, facts, (), ())

    def next_due_ms(self) -> int | None:
        """The earliest cluster time at which a tick would do something other than lock timeouts."""
        return tick.next_due_ms(self.state)

    def take_over(self, state: State) -> None:
        """Go on from another state, as a snapshot held it; of the old one nothing is left."""
        self.state.frozen.clear()
        self.state = state
        self.users_revision = state.users_revision

    def restoring(self, chunks: Iterator[bytes]) -> Iterator[None]:
        """Take over the state of a snapshot, one bounded step per `next`.

        Nothing changes before the last step. Raises `SnapshotError` if the bytes cannot be read.
        """
        self.take_over((yield from format.restoring(chunks)))

    def freeze(self) -> Frozen:
        """A view of the state as it is now, while the machine goes on: see `records.Frozen`.

        `snapshot.chunks` writes it and `bodies.live` tells which entries it points to, in steps.
        """
        return self.state.freeze()

    def snapshot(self) -> bytes:
        """The state in canonical bytes: equal states, equal bytes."""
        return format.encode(self.state)

    def digest(self) -> bytes:
        """A hash of the canonical state, for comparing replicas; as slow as a snapshot."""
        return format.digest(self.state)

    @staticmethod
    def restore(data: bytes) -> "Machine":
        """The machine that `data` is a snapshot of. Raises `SnapshotError`."""
        return Machine(format.decode(data))


def _finish(step: Step, facts: list[int]) -> None:
    """After the last command: hand out over the queues it touched, and note when they are due.

    What they hold then is added to the `facts` of the running hash.
    """
    state = step.state
    pending = state.pending
    if pending:
        for number in pending:
            step.touched.setdefault(number, state.queues[number])
    # A checkout may expire messages into a dead-letter queue, which is then touched too; those
    # chains have no cycle, and each round moves messages, so this ends.
    while step.touched:
        touched, step.touched = step.touched, {}
        for queue in touched.values():
            if queue.deleted:
                continue
            if queue.ready and queue.service:
                state.touch(queue)
                checkout.checkout(step, queue)
            elif pending:
                # Who comes, or what becomes ready, touches it again; till then there is no work.
                pending.pop(queue.number, None)
            if queue.expiry_of:
                state.touch(queue)
                ready.tidy(queue)
            tick.reschedule(step, queue)
            facts += running_hash.holds(queue)


def _apply(step: Step, command: Command) -> Reply:
    """Dispatch by command; the parent holds the ifs, the verbs hold the loops."""
    match command:
        case commands.Publish():
            return publish.publish(step, command)
        case commands.Settle():
            if command.generation:
                return durable.settle_tokens(step, command)
            return settle.settle(step, command)
        case commands.PublishAcross():
            return publish.publish_across(step, command)
        case commands.Tick():
            return tick.tick(step, command)
        case commands.Get():
            return subscribe.get(step, command)
        case commands.Credit():
            return subscribe.credit(step, command)
        case commands.Subscribe():
            return subscribe.subscribe(step, command)
        case commands.Cancel():
            return subscribe.cancel(step, command)
        case commands.Alive():
            return subscribe.alive(step, command)
        case commands.NoticeAck():
            return sessions.notice_ack(step, command)
        case commands.Attach():
            return sessions.attach(step, command)
        case commands.Detach():
            return sessions.detach(step, command)
        case commands.Disconnect():
            return sessions.disconnect(step, command)
        case commands.EndSession():
            return sessions.end_session(step, command)
        case commands.OpenProducer():
            return subscribe.open_producer(step, command)
        case commands.ForgetProducer():
            return subscribe.forget_producer(step, command)
        case commands.Lead():
            return sessions.lead(step, command)
        case commands.SetVersion():
            return _set_version(step, command)
        case _:
            return _apply_to_queue(step, command)


QueueCommand = (
    commands.Declare
    | commands.UpdateQueue
    | commands.DeleteQueue
    | commands.Purge
    | commands.PauseQueue
    | commands.ResumeQueue
    | commands.Redrive
    | commands.RedriveStep
    | commands.RedriveStop
    | commands.Move
    | commands.MessageAction
)

DurableCommand = (
    commands.OpenDurable
    | commands.Reserve
    | commands.Fetch
    | commands.AckUpto
    | commands.RenewDurable
    | commands.Forget
)


UserCommand = commands.PutUser | commands.RemoveUser | commands.ImportUsers


def _apply_to_queue(step: Step, command: QueueCommand | DurableCommand | UserCommand) -> Reply:
    match command:
        case commands.Declare():
            return queues.declare(step, command)
        case commands.UpdateQueue():
            return queues.update(step, command)
        case commands.DeleteQueue():
            return queues.delete(step, command)
        case commands.Purge():
            return queues.purge(step, command)
        case commands.PauseQueue():
            return queues.pause(step, command)
        case commands.ResumeQueue():
            return queues.resume(step, command)
        case commands.Redrive():
            return redrive.start(step, command)
        case commands.RedriveStep():
            return redrive.go_on(step, command)
        case commands.RedriveStop():
            return redrive.stop(step, command)
        case commands.Move():
            return redrive.move(step, command)
        case commands.MessageAction():
            return message.act(step, command)
        case _:
            return _apply_to_durable(step, command)


def _apply_to_durable(step: Step, command: DurableCommand | UserCommand) -> Reply:
    match command:
        case commands.OpenDurable():
            return durable.open_durable(step, command)
        case commands.Reserve():
            return durable.reserve(step, command)
        case commands.Fetch():
            return durable.fetch(step, command)
        case commands.AckUpto():
            return durable.ack_upto(step, command)
        case commands.RenewDurable():
            return durable.renew(step, command)
        case commands.Forget():
            return durable.forget(step, command)
        case _:
            return _apply_to_users(step, command)


def _apply_to_users(step: Step, command: UserCommand) -> Reply:
    match command:
        case commands.PutUser():
            return users.put(step, command)
        case commands.RemoveUser():
            return users.remove(step, command)
        case commands.ImportUsers():
            return users.take_over(step, command)
        case _:
            assert_never(command)


def _set_version(step: Step, command: commands.SetVersion) -> Reply:
    # A node that does not know the version must stop, not answer: the others would go on.
    assert command.version <= VERSION, "this node is older than the machine version it is given"
    if command.version < step.state.version:
        return Refused(RefusalCode.STALE, f"the machine version is {step.state.version}")
    step.state.version = command.version
    return Done()
