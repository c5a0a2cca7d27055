"""The promises: what a program heard, held against what the replicated state says happened.

Owns every comparison, each under a name that `rows` gives to the lines of docs/client.md. Must not
know how programs or faults are driven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import fifo
from fifo.client import limits
from fifo.client.consuming.consumer import Consumer
from fifo.machine.commands import Declare, DeleteQueue, Purge
from fifo.machine.replies import Declared, Deleted, Purged
from fifo.words.settlement import Status, Verb
from tests.client.model.heard import Asking, Heard, Letter, Publishing, Verdict
from tests.client.model.truth import Handed, Lock, Stored, Truth

if TYPE_CHECKING:
    from tests.client.model.acting import Actor

ALREADY, DEAD, LOST = (
    fifo.Status.ALREADY_SETTLED,
    fifo.Status.DEAD_LETTERED,
    (fifo.Status.LOCK_LOST, fifo.Status.UNKNOWN_CONSUMER),
)


LATE_S = 0.01
"""Time that the signal of a lock may come after its deadline: a few turns of the loop."""


class Promises:
    """All comparisons of one run. The first that does not hold ends it."""

    def __init__(self, truth: Truth, heard: Heard, clock: Callable[[], float]) -> None:
        self.truth = truth
        self.heard = heard
        self.clock = clock
        self.done: set[str] = set()
        """Messages whose ack was confirmed to a program."""
        truth.on_hand_out = self.one_holder
        self.broken: AssertionError | None = None

    def holds(self, promise: str, true: object, text: str) -> None:
        """Compare once. Raises AssertionError where the promise does not hold.

        It is kept too: the client logs what callbacks raise.
        """
        self.heard.compared(promise)
        if not true:
            self.broken = AssertionError(f"{self.clock():.4f} s: {promise}: {text}")
            raise self.broken

    # --- publishing -------------------------------------------------------------------------------

    def published(self, one: Publishing) -> None:
        """A publish has ended."""
        stored = self.truth.stored.get(one.body, [])
        what = f"{one.actor.name} published {one.body!r} to {one.queue}"
        if one.confirm is not None:
            self._confirmed(one, stored, what)
        elif one.verdict is Verdict.NO:
            self.holds("refused is not stored", not stored, f"{what}: {one.error!r}, {stored}")
        if isinstance(one.error, fifo.QueueNotFound) and not isinstance(
            one.error, fifo.QueueReplaced
        ):
            missing = self.truth.was_missing(one.queue, one.began)
            self.holds("a missing queue is missing", missing, f"{what}: {one.error!r}")
        if isinstance(one.error, fifo.QueueReplaced):
            life = self.truth.life(one.queue)
            here = [each for each in stored if life and each.queue_number == life.number]
            self.holds("in doubt is in no later queue", not here, f"{what}: {one.error!r}, {here}")
        self.heard.compared(f"publish ended {one.verdict.name}")

    def _confirmed(self, one: Publishing, stored: list[Stored], what: str) -> None:
        confirm = one.confirm
        assert confirm is not None
        found = [*stored]
        known = one.dedup is not None or one.number is not None
        if known and not stored:
            body = self.truth.bodies.get(confirm.id)
            earlier = [
                other
                for other in self.heard.publishings
                if other.says_the_same_as(one)
                # Under a number it may have been confirmed in an earlier queue of the name.
                and (other.body == body or (one.number is not None and other.confirm))
            ]
            text = f"{what}: {confirm}, {body!r:.20}"
            self.holds("a duplicate is the stored one", earlier, text)
            return
        ids = [each.id for each in found]
        self.holds("confirmed is stored", ids == [confirm.id], f"{what}: {confirm}, stored {ids}")

    def published_at_rest(self) -> None:
        """No answer to a publish turned out to be a lie later."""
        for one in self.heard.publishings:
            stored = self.truth.stored.get(one.body, [])
            what = f"{one.actor.name} published {one.body!r} to {one.queue}"
            self.holds("stored once", len(stored) <= 1, f"{what}: {stored}")
            if one.verdict is Verdict.NO:
                self.holds("refused is not stored", not stored, f"{what}: {one.error!r}, {stored}")
            if isinstance(one.error, fifo.QueueReplaced):
                later = [each for each in stored if self._came_after(each.queue_number, one)]
                text = f"{what}: {one.error!r}, {later}"
                self.holds("in doubt is in no later queue", not later, text)
        self._in_order()

    def _came_after(self, queue_number: int, one: Publishing) -> bool:
        """Whether a queue of this name was deleted since, before that one was declared."""
        lives = self.truth.queues[one.queue]
        return any(
            life.number < queue_number and life.died is not None and life.died >= one.began
            for life in lives
        )

    def _in_order(self) -> None:
        """Compare the order of the queues with that in which each program published."""
        published = [
            (one, each)
            for one in self.heard.publishings
            for each in self.truth.stored.get(one.body, [])
        ]
        for one, first in published:
            for other, second in published:
                same = (one.actor, first.queue_number) == (other.actor, second.queue_number)
                if same and 0.0 < one.ended <= other.began:
                    right = first.place < second.place
                    self.holds("in the order of its program", right, f"{first} before {second}")

    # --- consuming --------------------------------------------------------------------------------

    def received(self, letter: Letter) -> None:
        """A program has a message in hand."""
        message, handed = letter.message, self.truth.handed.get(letter.lock)
        self.holds("received was handed out", handed is not None, f"{letter}")
        assert handed is not None
        body = self.truth.bodies.get(handed.id)
        is_it = (message.id, message.body, message.queue) == (handed.id, body, handed.queue)
        self.holds("received is what is stored", is_it, f"{letter}: {handed}, {body!r:.20}")
        counts = (message.attempt, message.failures)
        same = counts == (handed.attempt, handed.failures)
        self.holds("received is counted right", same, f"{letter}: {counts}, {handed}")
        numbers = self.truth.sessions.get(letter.actor.session_id, [])
        self.holds("received by its session", handed.session in numbers, f"{letter}: {handed}")
        others = [
            other
            for other in self.heard.letters
            if other.lock == letter.lock and other.actor is letter.actor and other is not letter
        ]
        self.holds("received once", not others, f"{letter} again")
        fresh = message.remaining > 0 and not message.is_lost
        self.holds("received with its lock", fresh, f"{letter}: {message.remaining} s are left")

    def one_holder(self, lock: Lock, handed: Handed) -> None:
        """A message is handed out: no other program that has it believes in its lock."""
        again = handed.id in self.done
        self.holds("what is acked is not handed out", not again, f"{lock}: {handed}")
        for letter in self.heard.letters:
            if letter.message.id == handed.id and letter.lock != lock:
                self.holds(
                    "no lock is believed in by two",
                    not self.believes(letter),
                    f"{letter} is believed in for {letter.message.remaining:.3f} s more, and"
                    f" {lock} gets it: {handed}",
                )

    def believes(self, letter: Letter) -> bool:
        """Whether its program must take the message for its own: `lock_lost` is unset, its own
        deadline is not past, and nothing that it asked for can have settled it."""
        actor = letter.actor
        if not actor.is_alive or self.truth.is_taken(actor.session_id):
            return False
        if not letter.is_free:
            return False
        return bool(letter.message.remaining > letter.slack_s and not letter.message.is_lost)

    def flags(self) -> None:
        """Look at what programs can look at any time."""
        if self.broken is not None:
            raise self.broken
        for letter in self.heard.letters:
            message, lock = letter.message, letter.lock
            if not letter.actor.is_alive or message.ledger.void:
                continue
            if message.is_lost:
                self.holds("lost is lost", lock not in self.truth.locked, f"{letter} is locked")
            is_over = not letter.actor.program.paused and letter.seconds_left < -LATE_S
            if is_over and not message.settled and letter.actor.is_up:
                told = message.lock_lost.is_set()
                self.holds("a lock that has run out is lost", told, f"{letter}")

    def renewed(self, letter: Letter, error: fifo.FifoError | None) -> None:
        """An explicit renewal was answered."""
        lock = letter.lock
        if error is None:
            lost = lock not in self.truth.locked
            own = self.truth.carried_out(lock) is not None
            self.holds("renewed is locked", not lost or own or self._is_gone(letter), f"{letter}")
        elif isinstance(error, fifo.LockLost):
            gone = lock not in self.truth.locked or letter.message.ledger.void
            self.holds("a refused renewal is lost", gone, f"{letter}: {error!r}")

    def cancelled(self, letter: Letter, error: fifo.LockLost) -> None:
        """A block was cancelled: by the word of a node, or where the deadline had passed."""
        gone = letter.lock not in self.truth.locked or letter.message.ledger.void
        lost = gone or letter.message.has_run_out
        self.holds("a block is cancelled for a lost lock", lost, f"{letter}: {error!r}")

    def must_be_renewed(self, letter: Letter) -> bool:
        """Whether its program holds this message, unsettled, and has its client renew it."""
        message = letter.message
        held = letter.renews and not letter.asked and letter.lock in self.truth.locked
        return bool(held and not message.is_lost and not message.ledger.void)

    def _is_gone(self, letter: Letter) -> bool:
        """Whether its queue or its session went."""
        ended = self.truth.ended.get(letter.lock, 0.0)
        return ended >= self.clock() - 1.0

    def missed(self, queue: str, since: float, error: fifo.FifoError) -> None:
        """A call heard that there is no such queue."""
        missing = self.truth.was_missing(queue, since)
        self.holds("a missing queue is missing", missing, f"{queue} since {since:.3f}: {error!r}")

    # --- settling ---------------------------------------------------------------------------------

    def settled(self, one: Asking) -> None:
        """A settlement has ended, or was sent."""
        lock = one.letter.lock
        done = self.truth.carried_out(lock)
        what = f"{one.verb.name} of {one.letter}: {one.result or one.error!r}"
        history = self.truth.settlements(lock)
        if one.result is None:
            if one.verdict is Verdict.NO:
                self._not_done(one, f"{what}; {history}")
            return
        status, late = one.result
        if status is fifo.Status.OK:
            verbs = {each.verb for each in one.letter.asked}
            ok = done is not None and (done.verb, done.late) == (one.verb, late)
            ok = ok and done is not None and done.status is Status.OK and one.verb in verbs
            self.holds("done is done", ok, f"{what}; {history}")
            if one.verb is Verb.ACK:
                self.done.add(one.letter.message.id)
        elif status is ALREADY:
            self.holds("already settled is settled", done, f"{what}; {history}")
        elif status is DEAD:
            dead = any(each.status is Status.DEAD_LETTERED for each in history)
            self.holds("dead-lettered is dead-lettered", dead, f"{what}; {history}")
        elif status in LOST:
            self._not_done(one, f"{what}; {history}")
            free = lock not in self.truth.locked or one.letter.message.ledger.void
            self.holds("lock_lost is lost", free, f"{what} is locked")

    def acked(self, messages: Sequence[fifo.DurableMessage]) -> None:
        """A durable consumer has acked these: none is there any more, or comes again."""
        held = set(self.truth.locked.values())
        for one in messages:
            self.holds("acked of a durable consumer is gone", one.id not in held, f"{one}")
            self.done.add(one.id)

    def _not_done(self, one: Asking, text: str) -> None:
        """No settlement of this lock took effect that only this one can have been."""
        done = self.truth.carried_out(one.letter.lock)
        others: object = [
            each
            for each in one.letter.asked
            if each.verb is one.verb and each is not one and each.verdict is not Verdict.NO
        ]
        # A program that takes a session gives back what it does not know of: its release.
        others = others or (one.verb is Verb.RELEASE and isinstance(one.error, fifo.SessionTaken))
        is_false = done is not None and done.verb is one.verb and not others
        self.holds("not done is not done", not is_false, text)

    def unsettled(self, letter: Letter, error: fifo.FifoError) -> None:
        """The event of a settlement that was sent without waiting, and failed."""
        flag = letter.message.ack_failed.is_set()
        self.holds("a failure sets its flag", flag, f"{letter}: {error!r}")
        if not error.unknown:
            done = self.truth.carried_out(letter.lock)
            waited = [each for each in letter.asked if each.verdict is not Verdict.SENT]
            # Another program that has taken the session gives back what it does not know of.
            sent = {each.verb for each in letter.asked if each.verdict is Verdict.SENT}
            is_false = done is not None and done.verb in sent and not waited
            text = f"{letter}: {error!r}; {self.truth.settlements(letter.lock)}"
            self.holds("not done is not done", not is_false, text)

    def settled_at_rest(self) -> None:
        """Compare every settlement that was asked for with what came of it in the end."""
        for letter in self.heard.letters:
            for one in letter.asked:
                if one.verdict is Verdict.NO:
                    self.settled(one)
            self._accounted(letter)

    def _accounted(self, letter: Letter) -> None:
        sent = [one for one in letter.asked if one.verdict is Verdict.SENT]
        done = self.truth.carried_out(letter.lock)
        if sent and not letter.unsettled and letter.actor.is_alive:
            dead = any(
                each.status is Status.DEAD_LETTERED for each in self.truth.settlements(letter.lock)
            )
            text = f"{letter}: {[one.verb.name for one in letter.asked]}; no event, and {done}"
            self.holds("sent is settled or reported", done is not None or dead, text)
        if done is not None and not self.truth.is_taken(letter.actor.session_id):
            asked = done.verb in {one.verb for one in letter.asked}
            self.holds("settled was asked for", asked, f"{letter}: {done}")

    # --- at rest ----------------------------------------------------------------------------------

    def locks_at_rest(self) -> None:
        """Connected again, every program knows which of its locks hold."""
        for letter in self.heard.letters:
            if not letter.actor.is_connected:
                continue
            locked = letter.lock in self.truth.locked
            self.holds(
                "settled is not locked", not (letter.message.settled and locked), f"{letter}"
            )
            if not letter.is_free:
                continue
            knows = letter.message.is_lost
            self.holds("a lost lock is reported", locked or knows, f"{letter}: nothing is set")

    def gets_at_rest(self) -> None:
        """Compare what was got with what programs have in hand: the rest has gone back."""
        in_hand = {letter.lock for letter in self.heard.letters}
        for view in self._got_by():
            locks = [lock for lock in self.truth.locked if lock[0] == view["consumer"]]
            stray = [lock for lock in locks if lock not in in_hand]
            self.holds("what is given up goes back", not stray, f"{stray}, {view}")

    def idle_gets(self, actors: Sequence[Actor]) -> None:
        """Count the idle consumers of gets of programs that have just got something."""
        idle = Counter(view["session"] for view in self._got_by() if not view["held"])
        for actor in actors:
            kept = sum(idle[number] for number in self.truth.sessions.get(actor.session_id, ()))
            few = kept <= limits.GETS_IDLE_MAX + 1
            self.holds("few idle consumers of a get", few, f"{actor}: {kept}")

    def _got_by(self) -> Iterator[dict[str, Any]]:
        """The consumers of gets."""
        for name in self.truth.machine.queues():
            for view in self.truth.machine.consumers_of(name):
                if view["implicit"]:
                    yield view

    def activity_at_rest(self, consumers: Sequence[Consumer[fifo.Message]]) -> None:
        """Every consumer knows whether it is the active one of its queue."""
        for consumer in consumers:
            found = {
                view["consumer"]: view["status"]
                for view in self.truth.machine.consumers_of(consumer.queue)
            }
            status = found.get(consumer.number)
            text = f"{consumer}: {status}"
            if status is not None:
                right = consumer.active is (status == "active")
                self.holds("an active consumer knows it", right, text)

    # --- queues -----------------------------------------------------------------------------------

    def declared(self, name: str, began: float, *, created: bool) -> None:
        """A declaration was answered."""
        replies = [one.reply for one in self.truth.since(Declare, name, began)]
        found = any(isinstance(one, Declared) and one.created is created for one in replies)
        self.holds("declared is declared", found, f"{name} since {began:.3f}: {created}, {replies}")

    def deleted(self, name: str, began: float) -> None:
        """A deletion was answered."""
        replies = [one.reply for one in self.truth.since(DeleteQueue, name, began)]
        found = any(isinstance(one, Deleted) for one in replies)
        self.holds("deleted is deleted", found, f"{name} since {began:.3f}: {replies}")

    def purged(self, name: str, began: float) -> None:
        """A purge was answered."""
        replies = [one.reply for one in self.truth.since(Purge, name, began)]
        found = any(isinstance(one, Purged) for one in replies)
        self.holds("purged is purged", found, f"{name} since {began:.3f}: {replies}")
