"""Checks that many verbs begin with: does the session exist, is the connection its newest."""

from fifo.machine.commands import Fence
from fifo.machine.replies import Refused
from fifo.machine.state.records import Consumer, Queue, Session, Step
from fifo.words.codes import RefusalCode


def session(step: Step, number: int, fence: Fence | None) -> Session | Refused:
    """The session where it does not end, and this is not an older connection of it; to be opened
    before it is changed."""
    found = step.state.sessions.get(number)
    if found is None or found.end_cause is not None:
        return Refused(RefusalCode.UNKNOWN_SESSION, "there is no such session, or it has ended")
    if fence is not None:
        role, epoch = fence
        if epoch != found.epochs[role]:
            return Refused(RefusalCode.FENCED, "a newer connection of this session and role exists")
    return found


def own_consumer(
    step: Step, session_number: int, fence: Fence | None, number: int
) -> Consumer | Refused:
    """The consumer, open for change, where it is one of this session's and the session is good."""
    found = session(step, session_number, fence)
    if isinstance(found, Refused):
        return found
    consumer = step.state.consumer(number)
    if consumer is None or consumer.session != session_number:
        return Refused(RefusalCode.UNKNOWN_CONSUMER, "this session has no such consumer")
    return step.open_consumer(number)


def queue_for_session(
    step: Step, session_number: int, fence: Fence | None, name: str
) -> Queue | Refused:
    """The queue, open for change, where the session is good."""
    found = session(step, session_number, fence)
    return found if isinstance(found, Refused) else queue_named(step, name)


def queue_named(step: Step, name: str) -> Queue | Refused:
    """The queue, open for change."""
    number = step.state.queue_names.get(name)
    if number is None:
        return Refused(RefusalCode.QUEUE_NOT_FOUND, f"there is no queue {name!r}", {"queue": name})
    return step.open_queue(number)
