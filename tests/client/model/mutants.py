"""Bugs that make the client (or a node) say what is not so: random runs of the model find each.

Owns the bugs, each as one place in the source of one function. Hunts them by the seeds of
`driving`.
"""

from __future__ import annotations

from fifo.client.connection.session import Session
from fifo.client.consuming.getting import Getter
from fifo.client.consuming.lock_ledger import LockLedger
from fifo.client.consuming.lock_watch import LockWatch
from fifo.client.consuming.registry import Consumers
from fifo.client.consuming.settler import Settler
from fifo.client.publishing.publish_stream import PublishStream
from fifo.client.publishing.publisher import Publisher, PublishPart
from fifo.machine.verbs import sessions
from tests.client.model.driving import run
from tests.mutants.hunting import Mutant, seeds
from tests.mutants.switch import Switch, edited
from tests.sim.mutants import confirms_early, no_floors

SEEDS_MAX = 60
"""Runs until a bug has to be found."""


def noticed(seed: int) -> str | None:
    """Play a seed, and say what did not hold; None where all did."""
    try:
        run(seed)
    except Exception as error:  # a bug may also raise what no program expects
        return f"{type(error).__name__}: {error}"
    return None


BUGS: dict[str, Switch] = {
    "a second settlement is called settled while the first is unanswered": edited(
        Settler,
        "_second",
        "first.followers.append(follower)\n        return SENT",
        "return SettleResult(Status.ALREADY_SETTLED)",
    ),
    "a lost lock sets no flag": edited(Session, "flag_lost", "message.lose_lock()", "pass"),
    "a call whose answer is missing is called not done": edited(
        Session, "expired", "unknown=True", "unknown=False"
    ),
    "exhausted retries are called not done": edited(
        Settler, "_again", "unknown=settlement.tries.unknown", "unknown=False"
    ),
    "a publish is sent again under new numbers": edited(
        PublishStream,
        "_pack",
        "if frame.packed and frame.work.tries.unknown and not frame.work.abandoned():\n"
        "        return True",
        "frame.packed = False",
    ),
    "the confirm of a refused list counts one too many": edited(
        PublishPart,
        "done",
        "self.future.set_result((confirmed, error))",
        "self.future.set_result("
        "(confirmed and error and confirmed._replace(stored=confirmed.stored + 1) or confirmed,"
        " error))",
    ),
    "the local deadline of a lock is a minute late": edited(
        LockLedger,
        "_own_deadline",
        "end = delivery.received + delivery.remaining_s",
        "end = delivery.received + delivery.remaining_s + 60",
    ),
    "a lock that has run out is believed in": edited(
        LockWatch, "_look", "self._session.flag_run_out(ended)", "pass"
    ),
    "a message that comes again is handed out again": edited(
        LockLedger,
        "_unseen",
        "found = self._gaps.intersection(first, min(last, self._last_seen))",
        "return [(first, last)]",
    ),
    "a failed settlement without a receipt is reported to no program": edited(
        Settler, "_mixed", "self._unsettled(message, LockLost(result.status.value))", "pass"
    ),
    "two consumers of a program have one tag": edited(
        Consumers, "free_tag", "if one not in taken", ""
    ),
    "a client object that takes a session goes on under the other's numbers": edited(
        sessions,
        "attach",
        "forget_producer(step, session.producer)\n"
        "        session.producer = _new_producer(step.state)",
        "pass",
    ),
    "publishers wait for no bytes that are unanswered": edited(
        Publisher, "_is_full", "self._bytes >= self.session.options.window_bytes", "False"
    ),
    "a renewal leaves out what was held for longest": edited(
        LockLedger, "to_renew", "Ranges(self._unresolved)", "Ranges(list(self._unresolved)[1:])"
    ),
    "a renewal names what its program does not want renewed": edited(
        LockLedger, "to_renew", "set(self.lost) | self._not_renewed", "set(self.lost)"
    ),
    "consumers of gets with nothing in hand are kept": edited(
        Getter, "get", "self._leave_idle(limits.GETS_IDLE_MAX)", "pass"
    ),
    "what comes for a get that was given up is kept": edited(
        Getter, "_taken_late", "box.give_back()", "pass"
    ),
    "a leader confirms before it has committed": confirms_early,
    "a new leader gives locks no time": no_floors,
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(
        "promises", breaks, breaks, switch, (seeds(noticed, "model of the promises", SEEDS_MAX),)
    )
    for breaks, switch in BUGS.items()
)
