"""Model and machine side by side: one entry into both, then reply, effects and state compared.

Owns the translation of commands and the comparison; the rules are in the model's modules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fifo.machine import Machine, Meta, commands, effects, invariants, replies
from fifo.machine.commands import Command
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.spec import consumer_options
from fifo.machine.state import ready
from fifo.machine.types import Text, TextPlace
from fifo.machine.verbs import redrive
from fifo.words.settlement import AttemptOutcome, Reason, Status
from tests.machine.model import acting, durables, handing, lives, redriving, verbs
from tests.machine.model.acting import Acted
from tests.machine.model.handing import Handed
from tests.machine.model.records import DELAYED, LOCKED, READY, Consumer, Message
from tests.machine.model.verbs import Answer, Post, Posts
from tests.machine.model.world import World
from tests.support.machine import (
    WALL_EPOCH_MS,
    Area,
    across_command,
    messages_of,
    place_of,
    publish_command,
)
from tests.support.machine import Message as Delivered

Step = Command | Post | Posts | Acted
MANY = 100_000
TEXTS = ("reason", "description", "exception_text", "stack")
"""The texts of a settlement that may be too long for the state, in the order of `texts_at`."""
COUNTERS = (
    "published",
    "duplicates",
    "delivered",
    "acked",
    "late_acks",
    "redelivered_nack",
    "redelivered_timeout",
    "redelivered_disconnect",
    "redelivered_released",
    "redelivered_taken_back",
    "dead_lettered_terminated",
    "dead_lettered_max_deliveries",
    "dead_lettered_expired",
    "dead_lettered_overflow",
    "exhausted_dropped",
    "expired",
    "overflow_dropped",
    "purged",
    "lock_timeouts",
    "terms",
    "deleted",
)


@dataclass
class Pair:
    """The machine and the model, and the entries sent to both."""

    machine: Machine = field(default_factory=Machine)
    world: World = field(default_factory=World)
    index: int = 0
    areas: dict[int, bytes] = field(default_factory=dict)
    log: list[tuple[Meta, tuple[Command, ...]]] = field(default_factory=list)
    script: list[tuple[int, tuple[Step, ...]]] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)  # anew, all of them so far

    def apply(self, stamp_ms: int, *steps: Step) -> list[Any]:
        """Apply an entry to both; the machine's replies. Raises AssertionError at a difference."""
        self.index += 1
        self.script.append((stamp_ms, steps))
        area = Area()
        batch = tuple(_in_the_log(step, area) for step in steps)
        followed = [self._in_its_words(step) for step in steps]
        for command in batch:
            assert commands.from_list(commands.to_list(command)) == command
        held = bytes(area.data)
        if held:
            self.areas[self.index] = held
        meta = Meta(self.index, stamp_ms, WALL_EPOCH_MS + stamp_ms, memoryview(held))
        self.log.append((meta, batch))
        outcome = self.machine.apply_batch(meta, batch)
        invariants.check(self.machine.state)
        self._follow(meta, followed, batch, outcome.replies, outcome.effects)
        compare_states(self.world, self.machine)
        return outcome.replies

    def _in_its_words(self, step: Step) -> "Step | redriving.Chosen":
        """A step as the model sees it, which knows no positions."""
        if isinstance(step, commands.RedriveStep):
            return self._chosen(step)
        if isinstance(step, Acted):
            place = place_of(self.machine, step.command.queue, step.command.message)
            return replace(step, fits=place is not None and place[0] == step.command.position)
        return step

    def _chosen(self, step: commands.RedriveStep) -> redriving.Chosen:
        """A step of a redrive in the model's words; it has to be the entry's only command."""
        number = self.machine.state.queue_names.get(step.queue)
        if number is None:
            return redriving.Chosen(step.queue, False, (), False)
        queue = self.machine.state.queues[number]
        found = queue.redrive
        named = [p for p in step.positions if found is None or found.cursor <= p < step.until]
        ids = tuple(ready.message_id(queue, p) for p in named if p >> BLOCK_BITS in queue.blocks)
        fits = found is not None and found.cursor == step.cursor
        last = found is not None and step.until >= redrive.end_of(found)
        return redriving.Chosen(step.queue, fits, ids, last)

    def _follow(
        self,
        meta: Meta,
        steps: Sequence["Step | redriving.Chosen"],
        batch: Sequence[Command],
        answers: Sequence[replies.Reply],
        found: Sequence[effects.Effect],
    ) -> None:
        world = self.world
        world.now_ms = max(world.now_ms, meta.stamp_ms)
        world.wall_ms = meta.wall_ms
        world.effects, world.entry = [], meta.index
        names = self.machine.queues()
        world.queues_after = set(names)
        world.unused_at_first = {q.name for q in world.queues.values() if world.is_unused(q)}
        world.survivors = {one for name in names for one in ready_in(self.machine, name)}
        new = [e for e in found if isinstance(e, effects.Deliver) and not e.repeat]
        handed = [m for e in new for m in messages_of(e, self.areas)]
        world.handed = {one.message_id for one in handed}
        before = {c.number: is_active(world, c) for c in world.consumers.values()}
        for step, command, reply in zip(steps, batch, answers, strict=True):
            world.ticking = isinstance(command, commands.Tick)
            answer = step_model(world, step)
            compare_reply(step, answer, reply)
        self.delivered += handed
        self._hand_out(handed)
        compare_effects(world, found, before, self.areas)

    def _hand_out(self, handed: Sequence[Delivered]) -> None:
        world = self.world
        fresh = [m for m in handed if (m.consumer, m.token) not in world.got]
        moved = True
        while moved:  # into a dead-letter queue, where it may expire in its turn
            gone = [self._expire_gone(queue, handed, fresh) for queue in world.queues]
            moved = any(gone)
        for queue in world.queues:
            shown = [m.message_id for m in handed if m.queue == queue]
            handing.order_of_deaths(world, queue, shown + ready_in(self.machine, queue))
        for one in handed:
            message = world.holder_of(one.consumer, one.token)
            if (one.consumer, one.token) in world.got:
                world.got.remove((one.consumer, one.token))
                if message is None:
                    continue  # settled in the same entry
            else:
                handed_now = Handed(one.session, one.consumer, one.token, one.message_id)
                message = handing.follow(world, handed_now)
            compare_message(message, one, self.areas)
        assert not world.got, f"a get's messages were not delivered: {world.got}"
        handing.nothing_left_lying(world)

    def _expire_gone(
        self, queue: str, handed: Sequence[Delivered], fresh: Sequence[Delivered]
    ) -> bool:
        view = self.machine.queue_overview(queue)
        shown = [m.message_id for m in handed if m.queue == queue]
        ready = (view["ready"] if view else 0) + sum(m.queue == queue for m in fresh)
        shown += ready_in(self.machine, queue)
        return handing.expire_gone(self.world, queue, shown, ready)


def ready_in(machine: Machine, queue: str) -> list[tuple[int, int, int]]:
    """The ids of a queue's ready messages, as far as the machine shows them."""
    return [
        (run.queue_number, run.producer, run.number + place)
        for run in machine.peek(queue, MANY)
        for place in range(run.count)
    ]


def is_active(world: World, consumer: Consumer) -> bool:
    """Whether it is the active one of a single-active queue."""
    return world.queues[consumer.queue].active == consumer.number


def _packed(post: Post, area: Area) -> commands.Publish:
    letters = post.letters

    def column(name: str, neutral: Any) -> Any:
        values = [getattr(letter, name) for letter in letters]
        return values if any(value != neutral for value in values) else None

    numbers = [letter.number for letter in letters]
    dense = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return publish_command(
        area,
        post.queue,
        [letter.body for letter in letters],
        session=post.session,
        producer=post.producer,
        fence=post.fence,
        previous=post.previous,
        number=numbers[0],
        keys=column("key", b""),
        headers=column("headers", b""),
        priorities=column("priority", 4),
        delays=column("delay_ms", 0),
        ttls=column("ttl_ms", 0),
        dedup=column("dedup", b""),
        numbers=None if dense else numbers,
        queue_below=post.queue_below,
    )


def tokens_of(ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Every token of some ranges."""
    return [token for first, last in ranges for token in range(first, last + 1)]


def _in_the_log(step: Step, area: Area) -> Command:
    if isinstance(step, Post):
        return _packed(step, area)
    if isinstance(step, Posts):
        apart = Area()
        publishes = [_packed(post, apart) for post in step.posts]
        return replace(across_command(area, publishes, memoryview(apart.data)), fence=step.fence)
    if isinstance(step, Acted):
        if step.body is None:
            return step.command
        parts = (step.body, step.key, step.headers)
        body, key, headers = ((area.put(part), len(part)) for part in parts)
        return replace(step.command, content=(body, key, headers))
    if isinstance(step, commands.Settle):
        places: dict[str, tuple[int, int]] = {}
        for name in TEXTS:
            text = getattr(step, name)
            if text is not None and len(text) > 1_000:  # too long for the state
                places[name] = area.put(text.encode()), len(text.encode())
        if places:
            fields: dict[str, Any] = dict.fromkeys(places)
            return replace(step, **fields, texts_at=tuple(places.get(name) for name in TEXTS))
    return step


def is_fenced(world: World, step: "Step | redriving.Chosen") -> bool:
    """Whether it came over an older connection of its session and role (section 4)."""
    fence = getattr(step, "fence", None)
    session = world.sessions.get(getattr(step, "session", 0))
    if fence is None or session is None:
        return False
    if isinstance(step, commands.EndSession) and step.cause == 1:
        return False  # the leader's word, not a connection's
    role, epoch = fence
    return bool(session.epochs[role] != epoch)


def step_model(world: World, step: "Step | redriving.Chosen") -> Answer:
    """Apply a command to the model."""
    if is_fenced(world, step):
        return ("refused", "fenced")
    match step:
        case redriving.Chosen():
            return redriving.step(world, step)
        case Post():
            return verbs.publish(world, step)
        case Posts():
            return verbs.publish_across(world, step)
        case Acted():
            return acting.act(world, step)
        case commands.Settle():
            texts = {
                "detail": step.reason,
                "description": step.description,
                "exception_type": step.exception_type,
                "exception_text": step.exception_text,
                "stack": step.stack,
            }
            if step.generation:
                return durables.durable(world, step, texts)
            return verbs.settle(world, step, texts)
        case commands.Subscribe():
            options = consumer_options(step.options)
            return verbs.subscribe(world, step.session, step.tag, step.queue, options)
        case commands.Cancel():
            return verbs.cancel(world, step.session, step.consumer, tokens_of(step.unopened))
        case commands.Credit():
            return verbs.credit(world, step)
        case commands.Get():
            return verbs.get(world, step.session, step.queue, step.count, step.lock_ms)
        case commands.Alive():
            return verbs.alive(world, step.session, step.consumer, step.lost)
        case commands.NoticeAck():
            return lives.notice_ack(world, step.session, step.notice)
        case commands.OpenProducer():
            return lives.open_producer(world, step.name, step.user)
        case commands.ForgetProducer():
            return lives.forget_producer(world, step.name)
        case _:
            return _step_lives(world, step)


def _step_lives(world: World, step: Command) -> Answer:
    match step:
        case commands.Attach():
            return lives.attach(world, step)
        case commands.Detach():
            return lives.detach(world, step.session, step.role, step.epoch)
        case commands.Disconnect():
            epochs = (step.data_epoch, step.control_epoch)
            return lives.disconnect(world, step.session, epochs, step.floors)
        case commands.EndSession():
            return lives.end_session(world, step.session, step.cause)
        case commands.Lead():
            return lives.lead(world, step.term)
        case commands.Tick():
            return lives.tick(world, step.eval_consumer_timeouts)
        case commands.Declare():
            return lives.declare(world, step.name, step.spec, step.user)
        case commands.UpdateQueue():
            return lives.update(world, step.name, step.changes, step.user)
        case commands.DeleteQueue():
            return lives.delete(world, step.name)
        case commands.Purge():
            return lives.purge(world, step.name)
        case commands.SetVersion():
            if step.version < world.version:
                return ("refused", "stale")
            world.version = step.version
            return ("done",)
        case commands.Redrive():
            return redriving.start(world, step)
        case commands.RedriveStop():
            return redriving.stop(world, step.queue)
        case commands.Move():
            return lives.move(world, step.queue, step.target, step.limit)
        case (
            commands.OpenDurable()
            | commands.Reserve()
            | commands.Fetch()
            | commands.AckUpto()
            | commands.RenewDurable()
            | commands.Forget()
        ):
            return durables.durable(world, step)
        case commands.PauseQueue():
            return lives.pause(world, step.name, paused=True)
        case commands.ResumeQueue():
            return lives.pause(world, step.name, paused=False)
        case _:
            raise AssertionError(f"the model does not know {step}")


def compare_reply(step: "Step | redriving.Chosen", answer: Answer, reply: replies.Reply) -> None:
    """The model's plain words against the machine's reply."""
    shown: Answer
    match reply:
        case replies.Refused():
            shown = ("refused", reply.code)
        case replies.Done():
            shown = ("done",)
        case replies.Led():
            shown = ("led", reply.sessions)
        case replies.Ticked():
            assert not reply.more, "a tick left a rest of a small state"
            shown = ("ticked",)
        case replies.Attached():
            listed = set(reply.consumers)
            plain = ("attached", reply.session, reply.resumed, listed, reply.handle_key)
            assert answer == plain, (answer, reply)
            return
        case replies.Declared():
            shown = ("declared", reply.queue, reply.created)
        case replies.Deleted():
            shown = ("deleted", reply.messages)
        case replies.DurableOpened():
            held = tokens_of(reply.held)
            named = (reply.consumer, reply.generation, reply.next_token)
            shown = ("durable", *named, held, tokens_of(reply.lost))
        case replies.Reserved():
            assert not reply.more, "a reserve was cut short in a small state"
            named = (reply.consumer, reply.first_token, reply.count)
            shown = ("reserved", *named, reply.rest, reply.left_bytes, tokens_of(reply.lost))
        case replies.Moved():
            shown = ("moved", reply.messages)
        case replies.Purged():
            assert not reply.more
            shown = ("purged", reply.messages)
        case replies.ProducerOpened():
            shown = ("producer", reply.producer, {name: last for name, _, last in reply.last})
        case replies.Published():
            assert isinstance(step, Post), step
            shown = _stored(step, reply)
        case replies.PublishedAcross():
            assert isinstance(step, Posts), step
            pairs = zip(step.posts, reply.parts, strict=True)
            shown = ("across", [_stored(post, part) for post, part in pairs])
        case replies.Subscribed():
            numbers = (reply.consumer, reply.queue, reply.lock_ms, reply.prefetch)
            shown = ("subscribed", *numbers, reply.active)
        case replies.Got():
            assert not reply.more, "a get was cut short in a small state"
            shown = ("got", reply.consumer, reply.first_token, reply.count)
        case replies.Credited():
            assert not reply.more, "a drain was cut short in a small state"
            shown = answer
        case replies.Receipt():
            statuses = [
                (token, Status(status).name.lower(), late)
                for first, last, status, late in reply.ranges
                for token in range(first, last + 1)
            ]
            shown = ("receipt", reply.consumer, statuses)
        case _:
            raise AssertionError(f"an unexpected reply: {reply}")
    assert shown == answer, f"the machine says {shown}, the model {answer}"


def _stored(post: Post, reply: replies.Published | replies.Refused) -> Answer:
    if isinstance(reply, replies.Refused):
        return ("refused", reply.code)
    code = reply.refused.code if reply.refused else None
    detail = reply.refused.detail if reply.refused else None
    expected = detail["expected"] if code in ("gap", "queue_replaced") and detail else None
    confirmed = confirmed_ids(post, reply)
    return ("published", reply.queue, reply.producer, confirmed, code, expected)


def confirmed_ids(post: Post, reply: replies.Published) -> list[tuple[int, int, int]]:
    """The ids that a publisher receives for the confirmed messages of its batch."""
    confirmed = post.letters[: reply.duplicates + reply.stored]
    ids = [(reply.queue, reply.producer, letter.number) for letter in confirmed]
    for repeat in reply.repeats:
        for ahead in range(repeat.count):
            ids[repeat.place + ahead] = (reply.queue, repeat.producer, repeat.number + ahead)
    return ids


def compare_effects(
    world: World,
    found: Sequence[effects.Effect],
    before: dict[int, bool],
    areas: dict[int, bytes],
) -> None:
    """Everything but fresh deliveries, which the model has followed."""
    repeats, marks, notices, fenced, ended, removed = [], [], [], [], [], []
    last_activity: dict[int, bool] = {}
    for effect in found:
        compare_label(world, effect)
        match effect:
            case effects.Deliver():
                if effect.repeat:
                    again = messages_of(effect, areas)
                    repeats += [("repeat", m.session, m.consumer, m.token) for m in again]
            case effects.Resumed():
                marks.append(("mark", effect.session, effect.epoch))
            case effects.Notify():
                notices.append(("notice", effect.session, effect.notice))
                compare_notice(world, effect)
            case effects.Fenced():
                fenced.append(("fenced", effect.session, effect.role, effect.epoch))
            case effects.SessionEnded():
                ended.append(("ended", effect.session, effect.cause))
            case effects.ConsumerRemoved():
                removed.append(("removed", effect.session, effect.consumer))
            case effects.Activity():
                last_activity[effect.consumer] = effect.active

    def mine(kind: str) -> list[tuple[object, ...]]:
        return sorted(e for e in world.effects if e[0] == kind)

    assert sorted(repeats) == mine("repeat"), (sorted(repeats), mine("repeat"))
    assert sorted(marks) == mine("mark"), (marks, mine("mark"))
    assert sorted(notices) == mine("notice"), (notices, mine("notice"))
    assert set(mine("fenced")) <= set(fenced), (fenced, mine("fenced"))
    assert sorted(ended) == mine("ended"), (ended, mine("ended"))
    # Whether a queue or a session that end in one tick ends first is open.
    over = {session for _, session, _ in ended}
    heard = sorted(one for one in removed if one[1] not in over)
    meant = [one for one in mine("removed") if one[1] not in over]
    assert heard == meant, (removed, mine("removed"))
    for consumer in world.consumers.values():
        if consumer.cancelled:
            continue  # its client cancelled it
        now = is_active(world, consumer)
        notified = last_activity.get(consumer.number, before.get(consumer.number, False))
        assert notified == now, f"consumer {consumer.number}: active {now}, notified {notified}"


def compare_label(world: World, effect: effects.Effect) -> None:
    """Compare the label of a delivery or notice with that of its consumer."""
    if isinstance(effect, effects.Deliver | effects.Notify | effects.Activity):
        consumer = world.consumers.get(effect.consumer)
        if consumer is not None:
            assert effect.label == consumer.label, (effect, consumer)


def compare_notice(world: World, effect: effects.Notify) -> None:
    """A notice names the tokens that the model holds lost (if it is still kept)."""
    session = world.sessions.get(effect.session)
    if session is not None and effect.notice in session.notices:
        consumer, tokens = session.notices[effect.notice]
        shown = (effect.consumer, sorted(tokens_of(effect.ranges)))
        assert shown == (consumer, sorted(tokens)), (effect, consumer, tokens)


def whole(text: Text | None, areas: dict[int, bytes]) -> str | None:
    """A text of a dead letter, from the state or from the log."""
    if not isinstance(text, TextPlace):
        return text
    return areas[text.index][text.at : text.at + text.size].decode()


def compare_message(message: Message, one: Delivered, areas: dict[int, bytes]) -> None:
    """Compare the client's view of a fresh delivery."""
    assert message.message_id == one.message_id, (message, one)
    assert (message.body, message.key, message.headers) == (one.body, one.key, one.headers)
    assert message.priority == one.priority, (message, one)
    assert (message.attempts, message.failures) == (one.attempt, one.failures), (message, one)
    assert one.deadline_ms == message.checkout_ms + message.lock_ms, (message, one)
    dead, shown = message.dead, one.dead_letter
    assert (dead is None) == (shown is None), (message, one)
    if dead is not None:
        assert Reason(shown.reason).name.lower() == dead.reason
        assert shown.source == dead.source
        assert shown.exception_type == dead.exception_type
        said = [whole(text, areas) for text in shown.texts]
        assert said == [dead.detail, dead.description, dead.exception_text, dead.stack]
        history = [
            (a.consumer, AttemptOutcome(a.outcome).name.lower(), a.wall_ms) for a in shown.history
        ]
        assert history == dead.history, (history, dead.history)


def compare_states(world: World, machine: Machine) -> None:
    """Every queue, message, consumer and session, each in its one place."""
    assert machine.cluster_time_ms == world.now_ms
    assert set(machine.queues()) == set(world.queues)
    owned = {key: machine.owned(*key) for key in machine.state.owned}
    assert owned == world.owned(), f"items of users: {owned} and {world.owned()}"
    for name in world.queues:
        compare_queue(world, machine, name)
        compare_places(world, machine, name)
        compare_consumers(world, machine, name)
    for session in world.sessions.values():
        view = machine.session_view(session.number)
        assert view is not None, f"the machine has no session {session.number}"
        assert view["disconnected"] == session.disconnected, session
        assert [view["data_epoch"], view["control_epoch"]] == session.epochs, (view, session)
        assert view["data_attached"] == session.attached[0], session
        assert view["control_attached"] == session.attached[1], session
        assert sorted(view["notices"]) == sorted(session.notices), session
        assert view["use"] == session.use, (view, session)
        assert machine.session_of(session.session_id) == session.number


def compare_queue(world: World, machine: Machine, name: str) -> None:
    """Counts and counters."""
    queue, view = world.queues[name], machine.queue_overview(name)
    assert view is not None
    for where in (READY, LOCKED, DELAYED):
        there = len(world.in_queue(name, where))
        assert view[where] == there, f"{name} {where}: machine {view[where]}, model {there}"
    assert view["messages"] == len(world.in_queue(name))
    assert view["bytes"] == sum(world.size(m) for m in world.in_queue(name))
    assert view["paused"] == queue.paused
    assert view["active"] == queue.active, f"{name}: active {view['active']}, not {queue.active}"
    shown = {c: view["counters"][c] for c in COUNTERS}
    mine = {c: queue.counters.get(c, 0) for c in COUNTERS}
    wrong = {c: (shown[c], mine[c]) for c in COUNTERS if shown[c] != mine[c]}
    assert not wrong, f"{name}: counters (machine, model) {wrong}"
    redrive, seen = queue.redrive, machine.redrive_of(name)
    assert (redrive is None) == (seen is None), f"{name}: redrive {seen} and {redrive}"
    if redrive is not None and seen is not None:
        facts = (seen["status"], seen["moved"], seen["skipped"], seen["next_ms"])
        mine_now = (redrive.status, redrive.moved, redrive.skipped, redrive.next_ms)
        assert facts == mine_now, f"{name}: redrive {facts} and {mine_now}"
        assert bool(seen["reason"]) == (redrive.status == "paused"), seen


def compare_places(world: World, machine: Machine, name: str) -> None:
    """The ready ones in order, the locked with holder and deadline, the delayed with their time."""
    peeked = ready_in(machine, name)
    ready = [m.message_id for m in world.in_queue(name, READY)]
    if world.queues[name].spec.ordering == "key":
        free = [m.message_id for m in world.in_queue(name, READY) if not world.is_blocked(m)]
        assert [i for i in peeked if i in free] == free, f"{name}: {peeked}, free {free}"
    else:
        assert peeked == ready, f"{name}: ready in the machine {peeked}, in the model {ready}"
    locks = {
        (lock["consumer"], lock["token"]): (
            lock["message"],
            lock["attempt"],
            lock["failures"],
            lock["checkout_ms"],
            lock["remaining_ms"],
        )
        for lock in machine.locks_of(name, MANY)
    }
    mine = {
        (m.consumer, m.token): (
            m.message_id,
            m.attempts,
            m.failures,
            m.checkout_ms,
            max(world.deadline_ms(m) - world.now_ms, 0),
        )
        for m in world.in_queue(name, LOCKED)
    }
    assert locks == mine, f"{name}: locks {locks} and {mine}"
    delays = {
        d["message"]: (d["cause"], d["due_ms"], d["attempts"], d["failures"])
        for d in machine.delayed_of(name, MANY)
    }
    waits = {
        m.message_id: (m.cause, m.due_ms, m.attempts, m.failures)
        for m in world.in_queue(name, DELAYED)
    }
    assert delays == waits, f"{name}: delayed {delays} and {waits}"


def compare_consumers(world: World, machine: Machine, name: str) -> None:
    """Base status, flags, credit and holdings of each consumer."""
    queue = world.queues[name]
    shown = {view["consumer"]: view for view in machine.consumers_of(name)}
    assert set(shown) == {c.number for c in world.consumers_of(name)}, (name, list(shown))
    for consumer in world.consumers_of(name):
        view = shown[consumer.number]
        held = world.held_by(consumer)
        session = world.sessions.get(consumer.session)
        waits = world.is_single_active(queue) and queue.active != consumer.number
        base = "cancelled" if consumer.cancelled else "waiting" if waits else "active"
        if not consumer.implicit:
            assert view["status"] == base, (view, consumer)
        assert view["suspected"] == consumer.suspicion, (view, consumer)
        assert view["lost_running"] == consumer.running, (view, consumer)
        if session is not None:
            assert ("disconnected" in view["flags"]) == session.disconnected, view
            away = not session.disconnected and not session.attached[0]
            assert ("detached" in view["flags"]) == away, view
        assert view["credit"] == (consumer.credit if consumer.explicit else None), view
        facts = (view["held"], view["next_token"], view["lock_ms"], view["priority"])
        model = (len(held), consumer.next_token, consumer.lock_ms, consumer.priority)
        assert view["renewals"] == consumer.renewals, (view, consumer)
        assert facts == model, (view, consumer)
        expired, _ = machine.expired(consumer.number, world.now_ms)
        over = [m.token for m in held if world.deadline_ms(m) <= world.now_ms]
        assert sorted(tokens_of(expired)) == over, (consumer, expired, over)
