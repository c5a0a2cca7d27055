"""Plausible bugs of the actions on one message: a golden story or the model must notice each."""

from fifo.machine import deadletter, returns
from fifo.machine.verbs import message
from tests.machine import test_message
from tests.machine.model import mutants
from tests.mutants.hunting import Hunt, Mutant, named, scenario
from tests.mutants.switch import Switch, edited

BUGS: dict[str, Switch] = {
    "an action does not look whether it is still that message": edited(
        message, "_find", "or ready.message_id(queue, command.position) != command.message", ""
    ),
    "an action takes a lock that another consumer has by now": edited(
        message, "_find", "if command.consumer:", "if False:"
    ),
    "a lock that is taken back is not reported to its holder": edited(
        message,
        "_lost",
        'returns.notify(step, session, holder, [(token, token)], "taken_back")',
        "pass",
    ),
    "a lock that is taken back leaves its consumer no place more": edited(
        message, "_lost", "consumers.refresh(step, queue, holder)", "pass"
    ),
    "a message that is taken back goes to the same consumer at once": edited(
        returns, "way_of", "cause == Cause.TAKEN_BACK or ", ""
    ),
    "a message that is taken back waits by the backoff of a time-out": edited(
        message, "_unlock", "Cause.TAKEN_BACK", "Cause.TIMEOUT"
    ),
    "a deleted message is still settled late": edited(
        message, "_take", "deadletter.forget_late(step, found.record)", "pass"
    ),
    "a deleted message keeps its key": edited(
        message, "_take", "ordering.finished(step, queue, position)", "pass"
    ),
    "a token whose message was taken out is settled twice": edited(
        message, "_take", "consumers.add_taken(holder, token, token, dead=dead)", "pass"
    ),
    "a cancel takes out what is worked on": edited(
        message, "_delete", "found.command.action == Action.CANCEL", "False"
    ),
    "a ready message that an operator delays keeps its key": edited(
        message, "_delay", "ordering.finished(step, queue, position)", "pass"
    ),
    "a delayed message that gets another time is due twice": edited(
        message, "_delay", "queue.delays.remove((before_ms, position))", "pass"
    ),
    "a moved message loses its counts": edited(
        message, "_move", "None if record == FRESH else record", "None"
    ),
    "a message is moved to a full queue": edited(
        message, "_send_on", "overflow.is_over(target,", "False and overflow.is_over(target,"
    ),
    "a message needs room for itself to be resent in its own queue": edited(
        message, "_send_on", "(0, size - found.size) if stays", "(1, size) if stays"
    ),
    "a resent message has its old body": edited(
        message, "_send_on", "None if content is None else _edited", "None and _edited"
    ),
    "a message gives way to itself in its own queue": edited(
        deadletter,
        "transfer",
        """    ready.remove(source, position, 1)
    if target.spec.overflow == "drop_oldest":
        # Before it comes, so that it is never its own victim: a move is not refused.
        trim(step, target, further=False, more=1, more_bytes=batch.sizes[0])
""",
        """    if target.spec.overflow == "drop_oldest":
        trim(step, target, further=False, more=1, more_bytes=batch.sizes[0])
    ready.remove(source, position, 1)
""",
    ),
    "an edit may lie outside of its entry": edited(
        message, "_check", "at + size > len(step.area)", "False"
    ),
}

_DIRECTED = {
    "a message gives way to itself in its own queue": (
        test_message.test_a_message_of_a_limited_queue_is_resent_in_it_without_another_one_being_dropped,
    ),
    "an edit may lie outside of its entry": (
        test_message.test_an_edit_that_is_not_in_the_entry_or_too_large_changes_nothing,
    ),
}


def _hunts(breaks: str) -> tuple[Hunt, ...]:
    directed = [scenario(work, named(work)) for work in _DIRECTED.get(breaks, ())]
    return *directed, *mutants.hunts(breaks)


MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("machine", breaks, breaks, switch, _hunts(breaks)) for breaks, switch in BUGS.items()
)
