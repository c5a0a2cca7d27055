"""Golden scenarios: the small language of `golden/*.txt`, and its texts of replies and effects.

A file is a title and blocks: command lines, `----`, what they came to, an empty line. Words of a
command are separated by spaces, options are name=value. Consumers are numbers (`c1`), sessions are
the labels they were attached under. `show` prints a queue. `advance` moves time and ticks.
"""

import shlex
from collections.abc import Callable, Iterator
from typing import Any

from fifo.machine import commands, effects, replies
from fifo.machine.effects import Effect
from fifo.machine.replies import Reply
from fifo.machine.types import EndCause, Role
from fifo.words.actions import ACTIONS
from fifo.words.handles import handle_of
from fifo.words.settlement import AttemptOutcome, Reason, Status, Verb
from tests.support.machine import (
    WALL_EPOCH_MS,
    Area,
    Bench,
    across_command,
    key_of,
    messages_of,
    place_of,
    publish_command,
    sixteen,
)

VERBS = {"ack": Verb.ACK, "nack": Verb.NACK, "release": Verb.RELEASE, "terminate": Verb.TERMINATE}


def value_of(text: str) -> Any:
    """An option's value: integer, true, false, none, or the text itself."""
    named = {"true": True, "false": False, "none": None}
    if text in named:
        return named[text]
    return int(text) if text.lstrip("-").isdigit() else text


def ranges_of(text: str) -> tuple[tuple[int, int], ...]:
    """`1-3,7` as inclusive ranges."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.append((int(first), int(last or first)))
    return tuple(found)


class Story:
    """A scenario as it runs: executes command lines and renders their outcome."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.labels: dict[int, str] = {}
        self.bodies: dict[tuple[int, int, int], str] = {}  # of all that was published, by id

    def tell(self, line: str) -> list[str]:
        """Run a command line; return the lines of its outcome."""
        words = [word for word in shlex.split(line) if "=" not in word]
        options = dict(word.split("=", 1) for word in shlex.split(line) if "=" in word)
        values = {name: value_of(text) for name, text in options.items()}
        verb, *rest = words
        action: Callable[..., list[str]] = getattr(self, f"do_{verb}", self._queue_verb)
        return action(*rest, **values) if action != self._queue_verb else action(verb, *rest)

    def _session(self, label: str) -> int:
        found = [number for number, known in self.labels.items() if known == label]
        assert found, f"no session is called {label}"
        return found[-1]

    def _owner(self, consumer: str) -> tuple[int, int]:
        number = int(consumer.removeprefix("c"))
        held = self.bench.machine.state.consumers.get(number)
        session = held.session if held else 0
        return session or next(iter(self.labels)), number

    def _apply(self, command: commands.Command, area: Area | None = None) -> list[str]:
        reply = self.bench.apply(command, area=area)[0]
        return [*self.reply_lines(reply), *self.effect_lines(self.bench.effects)]

    # -- command lines --

    def do_attach(
        self,
        label: str,
        role: str = "data",
        incarnation: str = "i",
        user: str = "u",
        *,
        resume: bool = False,
    ) -> list[str]:
        command = commands.Attach(
            sixteen(label),
            int(Role[role.upper()]),
            sixteen(incarnation),
            key_of(label),
            user,
            "host:1",
            resume=resume,
        )
        reply = self.bench.apply(command)[0]
        if isinstance(reply, replies.Attached):
            self.labels[reply.session] = label
        return [*self.reply_lines(reply), *self.effect_lines(self.bench.effects)]

    def do_detach(self, label: str, role: str = "data", epoch: int | None = None) -> list[str]:
        number = int(Role[role.upper()])
        found = self.bench.machine.state.sessions[self._session(label)]
        return self._apply(
            commands.Detach(found.number, number, epoch or max(found.epochs[number], 1))
        )

    def do_disconnect(self, label: str, granted: int | None = None) -> list[str]:
        found = self.bench.machine.state.sessions[self._session(label)]
        floors = []
        if granted is not None:
            floors = [(number, self.bench.now + granted) for number in found.consumers]
        return self._apply(
            commands.Disconnect(found.number, found.epochs[0], found.epochs[1], tuple(floors))
        )

    def do_end(self, label: str, cause: int = 0) -> list[str]:
        return self._apply(commands.EndSession(self._session(label), cause))

    def do_lead(self) -> list[str]:
        return self._apply(commands.Lead(self.bench.machine.state.term + 1))

    def do_declare(self, name: str, **spec: Any) -> list[str]:
        return self._apply(commands.Declare(name, spec))

    def do_update(self, name: str, **changes: Any) -> list[str]:
        return self._apply(commands.UpdateQueue(name, changes))

    def _queue_verb(self, verb: str, name: str) -> list[str]:
        kinds: dict[str, Callable[[str], commands.Command]] = {
            "delete": commands.DeleteQueue,
            "purge": commands.Purge,
            "pause": commands.PauseQueue,
            "resume": commands.ResumeQueue,
        }
        return self._apply(kinds[verb](name))

    def do_publish(self, label: str, queue: str, *bodies: str, **options: Any) -> list[str]:
        session = self._session(label)
        bodies *= int(options.get("times", 1))
        count = len(bodies)
        columns: dict[str, Any] = {}
        if "key" in options:
            columns["keys"] = [str(options["key"]).encode()] * count
        for name, column in (("priority", "priorities"), ("delay", "delays"), ("ttl", "ttls")):
            if name in options:
                columns[column] = [options[name]] * count
        if "dedup" in options:
            names = [name.encode() for name in str(options["dedup"]).split(",")]
            columns["dedup"] = names * count if len(names) == 1 else names
        last = self.bench.numbers.get((session, queue), 0)
        previous = options.get("previous", last)
        number = options.get("number", previous + 1)
        area = Area()
        coded = [body.encode() for body in bodies]
        command = publish_command(
            area,
            queue,
            coded,
            session=session,
            producer=options.get("producer", 0),
            previous=previous,
            number=number,
            queue_below=options.get("queue_below", 0),
            **columns,
        )
        reply = self.bench.apply(command, area=area)[0]
        if isinstance(reply, replies.Published) and reply.stored:
            self.bench.numbers[(session, queue)] = number + reply.duplicates + reply.stored - 1
            for place, body in enumerate(bodies):
                self.bodies[reply.queue, reply.producer, number + place] = body
        return [*self.reply_lines(reply), *self.effect_lines(self.bench.effects)]

    def do_across(self, label: str, *parts: str, **options: Any) -> list[str]:
        """Publish `queue:previous:body,body`, each a part of one command."""
        session = self._session(label)
        apart, area = Area(), Area()
        publishes = []
        for part in parts:
            queue, previous, bodies = part.split(":")
            coded = [body.encode() for body in bodies.split(",")]
            named = {"session": session, "producer": options.get("producer", 0)}
            number = int(previous) + 1
            publishes.append(
                publish_command(apart, queue, coded, previous=int(previous), number=number, **named)
            )
        command = across_command(area, publishes, memoryview(apart.data))
        return self._apply(command, area)

    def do_produce(self, name: str) -> list[str]:
        return self._apply(commands.OpenProducer(name))

    def do_forget_producer(self, name: str) -> list[str]:
        return self._apply(commands.ForgetProducer(name))

    def do_subscribe(self, label: str, queue: str, /, **options: Any) -> list[str]:
        tag = str(options.pop("tag", "t"))
        options.setdefault("prefetch", 10)
        return self._apply(commands.Subscribe(self._session(label), tag, queue, options))

    def do_cancel(self, consumer: str, unopened: str = "") -> list[str]:
        session, number = self._owner(consumer)
        ranges = ranges_of(str(unopened)) if unopened else ()
        return self._apply(commands.Cancel(session, number, ranges))

    def do_credit(
        self, consumer: str, count: str, *, drain: bool = False, automatic: bool = False
    ) -> list[str]:
        session, number = self._owner(consumer)
        return self._apply(commands.Credit(session, number, int(count), drain, automatic))

    def do_get(self, label: str, queue: str, count: str = "1") -> list[str]:
        return self._apply(commands.Get(self._session(label), queue, int(count)))

    def do_alive(self, consumer: str, lost: int | None = None) -> list[str]:
        """The program lives; with `lost` it asks, and the handlers of so many lost ones run."""
        return self._apply(commands.Alive(*self._owner(consumer), lost))

    def do_noticed(self, label: str, notice: str) -> list[str]:
        return self._apply(commands.NoticeAck(self._session(label), int(notice)))

    def do_settle(self, verb: str, consumer: str, tokens: str, **fields: Any) -> list[str]:
        session, number = self._owner(consumer)
        if "by" in fields:
            session = self._session(fields.pop("by"))
        if "handles_of" in fields:
            fields["handles"] = self._handles(fields.pop("handles_of"), number, tokens)
        if "delay" in fields:
            fields["delay_ms"] = fields.pop("delay")
        command = commands.Settle(session, number, int(VERBS[verb]), ranges_of(tokens), **fields)
        return self._apply(command)

    def _handles(self, label: str, consumer: int, tokens: str) -> tuple[bytes, ...]:
        """The handles of these deliveries, if they went to the session called `label`."""
        key = key_of(label)
        named = [one for first, last in ranges_of(tokens) for one in range(first, last + 1)]
        return tuple(handle_of(key, consumer, token) for token in named)

    def do_ack(self, *words: str, **fields: Any) -> list[str]:
        return self.do_settle("ack", *words, **fields)

    def do_resolved(self, consumer: str, below: str) -> list[str]:
        """Raise the resolved mark: the client never asks again about tokens below this one."""
        session, number = self._owner(consumer)
        command = commands.Settle(session, number, int(Verb.ACK), (), resolved_below=int(below))
        return self._apply(command)

    def do_nack(self, *words: str, **fields: Any) -> list[str]:
        return self.do_settle("nack", *words, **fields)

    def do_release(self, *words: str, **fields: Any) -> list[str]:
        return self.do_settle("release", *words, **fields)

    def do_terminate(self, *words: str, **fields: Any) -> list[str]:
        return self.do_settle("terminate", *words, **fields)

    def do_advance(self, milliseconds: str) -> list[str]:
        self.bench.advance(int(milliseconds))
        self.bench.tick_all()
        return [f"at {self.bench.now} ms", *self.effect_lines(self.bench.effects)]

    def do_wait(self, milliseconds: str) -> list[str]:
        """Advance the clock without a tick."""
        self.bench.advance(int(milliseconds))
        return [f"at {self.bench.now} ms"]

    def do_evaluate(self, consumer: str, tokens: str) -> list[str]:
        """A tick that names these tokens, whatever the state says of them."""
        number = int(consumer.removeprefix("c"))
        named = tuple((number, first, last) for first, last in ranges_of(tokens))
        return self._apply(commands.Tick(named))

    def do_version(self, number: str) -> list[str]:
        return self._apply(commands.SetVersion(int(number)))

    def do_open(self, queue: str, name: str) -> list[str]:
        return self._apply(commands.OpenDurable(queue, name))

    def do_reserve(self, consumer: str, count: str, *, runs: bool = False) -> list[str]:
        """By the reader itself, in its newest generation; what it gets is sent to no session."""
        _, number = self._owner(consumer)
        generation = self.bench.machine.state.consumers[number].durable
        return self._apply(commands.Reserve(number, generation, int(count), runs=runs))

    def do_move(self, queue: str, target: str, count: str = "1") -> list[str]:
        return self._apply(commands.Move(queue, target, int(count)))

    def do_act(self, action: str, queue: str, wanted: str, **fields: Any) -> list[str]:
        """An action on the message with this body, where it stands now or stood `at` that place."""
        message, place = self._message(queue, wanted)
        if "at" in fields:
            at, lock = str(fields.pop("at")).split("@")
            consumer, token = lock.removeprefix("c").split("/")
            place = int(at), int(consumer), int(token)
        if "delay" in fields:
            fields["delay_ms"] = fields.pop("delay")
        area = Area()
        if "body" in fields:
            parts = [str(fields.pop(name, "")).encode() for name in ("body", "key", "headers")]
            fields["content"] = tuple((area.put(part), len(part)) for part in parts)
        position, consumer_number, token_number = place
        command = commands.MessageAction(
            queue,
            int(ACTIONS[action]),
            message,
            position,
            consumer_number,
            token_number,
            **fields,
        )
        return self._apply(command, area)

    def _message(
        self, queue: str, wanted: str
    ) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The id of the message with this body, and where it stands in the queue, if it does."""
        machine, found = self.bench.machine, None
        for message, body in self.bodies.items():
            place = place_of(machine, queue, message)
            if body == wanted and (place is not None or found is None):
                found = message, place or (0, 0, 0)
        assert found is not None, f"no message has the body {wanted}"
        return found

    def do_redrive(self, queue: str, target: str | None = None, **options: Any) -> list[str]:
        return self._apply(commands.Redrive(queue, target, **options))

    def do_step(self, queue: str, most: str = "10", cursor: int | None = None) -> list[str]:
        """The leader's next step of a redrive, without a filter."""
        view = self.bench.machine.redrive_of(queue)
        assert view is not None, "no redrive to go on with"
        found, until = self.bench.machine.redrive_candidates(queue, int(most))
        at = view["cursor"] if cursor is None else cursor
        positions = tuple(position for position, _ in found)
        return self._apply(commands.RedriveStep(queue, at, until, positions))

    def do_redriven(self, queue: str) -> list[str]:
        """The progress of a redrive."""
        view = self.bench.machine.redrive_of(queue)
        assert view is not None, "no redrive to look at"
        counts = f"moved {view['moved']} skipped {view['skipped']}"
        return [f"redrive {view['status']}: {counts} {view['reason']}".rstrip()]

    def do_show(self, name: str) -> list[str]:
        """A queue: counts, what moved, its consumers, what is delayed, what comes next."""
        return list(self._shown(name))

    def _shown(self, name: str) -> Iterator[str]:
        machine = self.bench.machine
        found = self.bench.overview(name)
        counts = " ".join(f"{word} {found[word]}" for word in ("ready", "locked", "delayed"))
        counted = {key: count for key, count in found["counters"].items() if count}
        yield f"queue {name}: {counts}"
        yield "  " + " ".join(f"{key}={count}" for key, count in counted.items())
        for consumer in machine.consumers_of(name):
            flags = "".join(f" +{flag}" for flag in consumer["flags"])
            lost = f" lost {consumer['lost_running']}" if consumer["lost_running"] else ""
            who = f"c{consumer['consumer']} {consumer['status']}{flags}"
            yield f"  {who} held {consumer['held']}{lost}"
        for entry in machine.delayed_of(name, 10):
            yield f"  delayed until {entry['due_ms']}: {entry['cause']}"
        for run in machine.peek(name, 10):
            body = self.bench.areas[run.index][run.bodies_at : run.bodies_at + run.bodies_bytes]
            letter = run.dead_letter
            if letter is None:
                yield f"  ready {body.decode()!r}"
                continue
            words = [Reason(letter.reason).name.lower(), f"from {letter.source}"]
            words += [repr(letter.detail)] if letter.detail is not None else []
            lines = ", ".join(
                f"c{line.consumer} {AttemptOutcome(line.outcome).name.lower()} "
                f"at {line.wall_ms - WALL_EPOCH_MS}"
                for line in letter.history
            )
            yield f"  dead {body.decode()!r}: {' '.join(words)} [{lines}]"

    # -- what came of it --

    def reply_lines(self, reply: Reply) -> list[str]:
        """A reply as text."""
        match reply:
            case replies.Refused():
                detail = f" {reply.detail}" if reply.detail else ""
                return [f"refused {reply.code}: {reply.text}{detail}"]
            case replies.Receipt():
                return [
                    f"receipt c{reply.consumer} {_range(first, last)} {_status(status, late)}"
                    for first, last, status, late in reply.ranges
                ] or [f"receipt c{reply.consumer} nothing"]
            case replies.Published():
                words = [f"published stored={reply.stored} duplicates={reply.duplicates}"]
                words += [_repeat(reply.queue, repeat) for repeat in reply.repeats]
                if reply.refused is not None:
                    words += self.reply_lines(reply.refused)
                return [", ".join(words)]
            case replies.PublishedAcross():
                return [line for part in reply.parts for line in self.reply_lines(part)]
            case replies.Subscribed():
                state = "active" if reply.active else "waiting"
                return [f"subscribed c{reply.consumer} lock {reply.lock_ms} ms {state}"]
            case replies.Attached():
                how = "resumed" if reply.resumed else "opened"
                held = "".join(f" c{number}" for number, *_ in reply.consumers)
                return [f"{how} session {reply.session} epoch {reply.epoch}{held}"]
            case replies.Got():
                more = ", more if asked again" if reply.more else ""
                return [f"got c{reply.consumer} {reply.count} from {reply.first_token}{more}"]
            case replies.Credited():
                more = ", more if asked again" if reply.more else ""
                return [f"credit left {reply.left}{more}"]
            case replies.Done():
                return ["done"]
            case _:
                return [repr(reply)]

    def effect_lines(self, found: list[Effect]) -> list[str]:
        """Effects as text, in their order."""
        lines: list[str] = []
        for effect in found:
            match effect:
                case effects.Deliver():
                    lines += self._delivery(effect)
                case effects.Notify():
                    ranges = ",".join(_range(first, last) for first, last in effect.ranges)
                    label = self.labels[effect.session]
                    kind = "" if effect.kind == "message_timeout" else f" {effect.kind}"
                    text = f"notice {effect.notice}{kind}: c{effect.consumer} {ranges}"
                    lines.append(f"-> {label} {text}{_labelled(effect)}")
                case effects.Activity():
                    state = "active" if effect.active else "waiting"
                    label = self.labels[effect.session]
                    text = f"c{effect.consumer} is {state}"
                    lines.append(f"-> {label} {text}{_labelled(effect)}")
                case effects.Resumed():
                    label = self.labels[effect.session]
                    lines.append(f"-> {label} has all again on connection {effect.epoch}")
                case effects.Fenced():
                    role = Role(effect.role).name.lower()
                    taken = " session taken" if effect.taken else ""
                    label = self.labels[effect.session]
                    lines.append(f"-> {label} {role} connection {effect.epoch} is fenced{taken}")
                case effects.ConsumerRemoved():
                    label = self.labels[effect.session]
                    text = f"c{effect.consumer} is removed: {effect.cause}"
                    lines.append(f"-> {label} {text}{_labelled(effect)}")
                case effects.SessionEnded():
                    cause = EndCause(effect.cause).name.lower()
                    lines.append(f"-> {self.labels[effect.session]} session ended: {cause}")
        return lines

    def _delivery(self, effect: effects.Deliver) -> list[str]:
        lines = []
        for message in messages_of(effect, self.bench.areas):
            again = " again" if effect.repeat else ""
            label = self.labels.get(effect.session, "no session")
            lines.append(
                f"-> {label} c{message.consumer}/{message.token} {message.body.decode()!r}{again} "
                f"attempt {message.attempt} failures {message.failures} "
                f"until {message.deadline_ms}{_labelled(effect)}"
            )
        return lines


def _labelled(
    effect: effects.Deliver | effects.Notify | effects.Activity | effects.ConsumerRemoved,
) -> str:
    """The label that an effect carries, where it has one."""
    return f" label {effect.label!r}" if effect.label else ""


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _repeat(queue: int, repeat: replies.Repeat) -> str:
    """Which bodies of a publish, from 1, are which messages that were stored before."""
    last = repeat.place + repeat.count
    first_id = f"{queue}.{repeat.producer}.{repeat.number}"
    return f"{_range(repeat.place + 1, last)} stored as {first_id}" + ("..." * (repeat.count > 1))


def _status(status: int, late: bool) -> str:
    return Status(status).name.lower() + (" late" if late else "")


def run(text: str) -> str:
    """A scenario's text with what the machine really does below each `----`."""
    story = Story()
    out: list[str] = []
    for block in text.strip("\n").split("\n\n"):
        given = block.split("\n")
        stop = given.index("----") if "----" in given else len(given)
        told = given[:stop]
        came: list[str] = []
        lines = [line for line in told if not line.startswith("#")]
        for line in lines:
            came += story.tell(line)
        out.append("\n".join([*told, "----", *came] if lines else told))
    return "\n\n".join(out) + "\n"
