"""The errors of the client: one root, and a class for each case that a program can act on.

Owns the mapping from the codes on the wire to classes. Must not know connections.
Each class also inherits the builtin that fits, so that `except TimeoutError` works.
A new code in `fifo.wire.errors` gets its line in `_BY_CODE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fifo.wire import Code

if TYPE_CHECKING:
    from collections.abc import Sequence


class FifoError(Exception):
    """Root of everything that this package raises.

    `code` is the protocol's text for it (or None where the error arose here), `retryable` says that
    the same call may succeed later, `detail` is plain data that came with it. `unknown` is true
    where what was asked for may have happened all the same.
    """

    code: str | None = None
    retryable = False
    unknown = False

    def __init__(self, text: str = "", *, detail: Any = None, unknown: bool = False) -> None:
        super().__init__(text)
        self.detail = detail
        if unknown:
            self.unknown = True


class PublishError(FifoError):
    """Mixed into what `publish_many` raises: what was stored before the failure.

    `confirms` are those of the stored prefix, `index` is the place of the first body that was not.
    """

    confirms: Sequence[Any] = ()
    index: int = 0


class ConnectionLost(FifoError, ConnectionError):
    """No connection to a leader; the text names the addresses that were tried."""


class NotLeader(ConnectionLost):
    """The node does not lead (any more)."""


class Timeout(FifoError, TimeoutError):
    """The call's time is over. `unknown`: it was sent, and may have happened or still happen."""


class AuthenticationFailed(FifoError, PermissionError):
    """The node does not accept who we say we are."""


class PermissionDenied(FifoError, PermissionError):
    """This user may not do that."""


class QueueNotFound(FifoError, LookupError):
    """There is no queue of that name."""


class MessageNotFound(FifoError, LookupError):
    """The message does not stand there, or not any more as it was found."""


class PinGone(FifoError, LookupError):
    """The pinned view has ended: unused for its lease, let go of, or its node had to; pin anew."""


class QueueReplaced(QueueNotFound):
    """The answer was lost, and the queue that has the name now has not stored the message: one of
    that name before it may have. The text says whether it is known that there was one."""


class QueueExists(FifoError, ValueError):
    """A queue of that name has another spec; `difference` maps fields to (is, asked for)."""

    @property
    def difference(self) -> dict[str, tuple[Any, Any]]:
        """Field to (what is, what was asked for)."""
        detail = self.detail if isinstance(self.detail, dict) else {}
        found = detail.get("difference") or detail.get("differences") or {}
        return {name: (pair[0], pair[1]) for name, pair in found.items()}


class QueueFull(FifoError):
    """The queue is at its limit and refuses; try again later, or publish less."""


class QueueInUse(FifoError):
    """The queue cannot be deleted or fetched from as things stand."""


class MessageTooLarge(FifoError, ValueError):
    """A body, key, headers or id above the limit; nothing was sent."""


class LockLost(FifoError):
    """The lock is not ours any more: the message may be with somebody else."""


class NotRenewable(FifoError):
    """This consumer said that its locks are not renewed."""


class NoDeadLetterQueue(FifoError):
    """The queue has no dead-letter queue; the message stays locked, nothing is lost."""


class AckRetriesExhausted(FifoError):
    """A settlement was tried `max_ack_retries` times more, and never answered: it may have been
    carried out if `unknown`, and was never sent (in an outage) or refused each time if not."""


class SessionTaken(FifoError, ConnectionError):
    """Another client object uses this session: this one stops, and does not fight."""


class SessionEnded(FifoError, ConnectionError):
    """The session is over: its locks are void, what it had not confirmed is unknown."""


class ProducerGap(FifoError):
    """The node expects an earlier number of this producer: something was not stored."""


class UnknownProducer(FifoError):
    """The producer is not known (any more): open it again."""


class InvalidArgument(FifoError, ValueError):
    """A name, size or duration out of range; nothing was sent."""


class LimitReached(FifoError):
    """A limit of the cluster: queues, sessions, consumers, or remembered dedup ids."""


class Overloaded(FifoError):
    """The node has too much to do, or is stopping; the client has tried again until its time."""


class Unsupported(FifoError, NotImplementedError):
    """The node does not know how to do this (yet)."""


class ProtocolError(FifoError):
    """A message that the protocol does not allow: a bug, or a port of another service."""


class ClientClosed(FifoError, RuntimeError):
    """This client was closed, or belongs to another event loop, or to another process (a fork)."""


class Terminal(Exception):
    """Raised by a handler inside `process()`: this message can never succeed, terminate it.

    `reason` and `description` stand in the dead letter. Not a `FifoError`: it is the program's.
    """

    def __init__(self, reason: str = "terminated", description: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description


_BY_CODE: dict[str, type[FifoError]] = {
    Code.PROTOCOL: ProtocolError,
    Code.UNSUPPORTED: Unsupported,
    Code.UNSUPPORTED_VERSION: Unsupported,
    Code.INVALID_ARGUMENT: InvalidArgument,
    Code.TOO_LARGE: MessageTooLarge,
    Code.AUTHENTICATION_FAILED: AuthenticationFailed,
    Code.PERMISSION_DENIED: PermissionDenied,
    Code.NOT_LEADER: NotLeader,
    Code.MOVED: NotLeader,
    Code.SESSION_TAKEN: SessionTaken,
    Code.SESSION_ENDED: SessionEnded,
    Code.UNKNOWN_OUTCOME: ConnectionLost,
    Code.OVERLOADED: Overloaded,
    Code.SHUTTING_DOWN: Overloaded,
    Code.QUEUE_NOT_FOUND: QueueNotFound,
    Code.QUEUE_REPLACED: QueueReplaced,
    Code.MESSAGE_NOT_FOUND: MessageNotFound,
    Code.PIN_GONE: PinGone,
    Code.QUEUE_EXISTS: QueueExists,
    Code.QUEUE_FULL: QueueFull,
    Code.IN_USE: QueueInUse,
    Code.GAP: ProducerGap,
    Code.UNKNOWN_PRODUCER: UnknownProducer,
    Code.DEDUP_FULL: LimitReached,
    Code.UNKNOWN_CONSUMER: LockLost,
    Code.LOCK_LOST: LockLost,
    Code.NOT_RENEWABLE: NotRenewable,
    Code.NOT_NOW: Overloaded,
    Code.NO_DEAD_LETTER_QUEUE: NoDeadLetterQueue,
    Code.LIMIT: LimitReached,
}


def from_code(code: str, text: str, detail: Any = None, *, retryable: bool = False) -> FifoError:
    """The error for what a node answered; an unknown code gives a plain `FifoError`."""
    cls = _BY_CODE.get(code, FifoError)
    error = cls(text or code, detail=detail, unknown=code == Code.UNKNOWN_OUTCOME)
    error.code = code
    error.retryable = retryable
    return error


def again(error: FifoError) -> FifoError:
    """The same error for another raise: an exception keeps the traceback of every raise."""
    return reworded(error, str(error))


def reworded(error: FifoError, text: str) -> FifoError:
    """The same error with another text."""
    copy = type(error)(text, detail=error.detail, unknown=error.unknown)
    copy.code, copy.retryable = error.code, error.retryable
    copy.__cause__ = error.__cause__
    return copy


def with_progress(error: FifoError, confirms: Sequence[Any], index: int) -> FifoError:
    """The same error for one caller of `publish_many`, with `.confirms` and `.index`.

    A copy of its class that also is a `PublishError`: one refusal may concern several callers.
    """
    cls = type(error)
    if not isinstance(error, PublishError):
        cls = _mixed(cls)
    copy = cls(str(error), detail=error.detail, unknown=error.unknown)
    copy.code, copy.retryable = error.code, error.retryable
    assert isinstance(copy, PublishError)
    copy.confirms, copy.index = confirms, index
    copy.__cause__ = error.__cause__
    return copy


_MIXED: dict[type[FifoError], type[FifoError]] = {}


def _mixed(cls: type[FifoError]) -> type[FifoError]:
    """The class that is both `cls` and `PublishError`, under the name of `cls`."""
    found = _MIXED.get(cls)
    if found is None:
        found = type(cls.__name__, (cls, PublishError), {"__doc__": cls.__doc__})
        found.__module__ = cls.__module__
        _MIXED[cls] = found
    return found
