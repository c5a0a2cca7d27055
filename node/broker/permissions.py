"""Permissions of requests: one line per message; a message without a line is refused.

Owns the table from requests to permissions on queues. A queue that is only named in a request (a
dead-letter queue, the target of a move) needs a permission of its own, or a message could be led
into a stranger's queue. Must not know connections, nor how a request is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from fifo.wire import messages as wire
from fifo.wire import pins
from fifo.wire.membership import ChangeMembers
from fifo.wire.messages import Message
from fifo.wire.operating import Audit, Find, ManageUser, MessageAction
from fifo.wire.upgrading import FinishUpgrade
from node.broker import limits
from node.users import Permission, Quota, Token, User

OWN_PASSWORD: Final = "password"
"""The action of `ManageUser` by which a user changes its own password."""

DECLARE, PUBLISH = Permission.DECLARE, Permission.PUBLISH
CONSUME, MANAGE = Permission.CONSUME, Permission.MANAGE


class Signed(NamedTuple):
    """A token of an identity provider that proved a user: the groups that it names, its end in
    milliseconds since 1970, the digest of its key, and the settings that gave the groups rights."""

    groups: frozenset[str]
    ends_ms: int
    key: bytes
    settings: object


class Rights:
    """The rights of one user. Kept while the node runs, so that a publish costs one look-up.

    `token`, or `subject` of a certificate, or `signed` of a provider's token: what they were proven
    by; a connection ends with it. `by_password`: the user's password was.
    """

    def __init__(
        self,
        user: User,
        token: Token | None = None,
        subject: str | None = None,
        *,
        signed: Signed | None = None,
        by_password: bool = False,
    ) -> None:
        self.user = user
        self.token = token
        self.subject = subject
        self.signed = signed
        self.by_password = by_password
        self._known: dict[tuple[Permission, str], bool] = {}

    def may(self, permission: Permission, queue: str) -> bool:
        """Whether the user has this permission on this queue."""
        found = self._known.get((permission, queue))
        if found is None:
            if len(self._known) >= limits.RIGHTS_KNOWN_MAX:
                self._known.clear()
            found = self._known[permission, queue] = self.user.may(permission, queue)
        return found

    def sees(self, queue: str) -> bool:
        """Whether the user may know that there is this queue: with any permission on it."""
        return any(self.may(permission, queue) for permission in Permission)

    def share(self, quota: Quota) -> int | None:
        """The configured share of this quota; None where the default holds."""
        return next((share for one, share in self.user.shares if one is quota), None)

    @property
    def may_monitor(self) -> bool:
        """Whether the user may see how nodes are, and all queues in what they count."""
        return self.user.monitor or self.user.operate

    def refusal(self, message: Message) -> str | None:
        """Why this request is not for this user, or None where it is."""
        needs = _NEEDS.get(type(message))
        if needs is None:
            return f"user {self.user.name} may not ask for {type(message).__name__}"
        return next((text for text in needs(self, message) if text is not None), None)

    def lacks(self, queue: str, *any_of: Permission) -> str | None:
        """The missing permission, in words; None if the user has one of these."""
        if any(self.may(permission, queue) for permission in any_of):
            return None
        wanted = " or ".join(any_of)
        return f"user {self.user.name} has no permission to {wanted} on queue {queue!r}"


Refusals: TypeAlias = Iterator[str | None]
_NEEDS: Final[dict[type[Message], Callable[[Rights, Any], Refusals]]] = {}


def _on(*any_of: Permission) -> Callable[[Rights, Any], Refusals]:
    """Any of these permissions on the queue that the message names."""

    def needs(rights: Rights, message: Any) -> Refusals:
        yield rights.lacks(message.queue, *any_of)

    return needs


def _everybody(rights: Rights, message: Message) -> Refusals:
    """About the session itself: its consumers were granted when they subscribed."""
    return iter(())


def _publisher(rights: Rights, message: Message) -> Refusals:
    """A producer of a user who may publish nowhere would only take up room."""
    if not rights.user.publish:
        yield f"user {rights.user.name} has no permission to publish on any queue"


def _declare(rights: Rights, message: wire.Declare) -> Refusals:
    yield rights.lacks(message.queue, DECLARE)
    yield from _dead_letter(rights, message.spec)


def _update(rights: Rights, message: wire.Update) -> Refusals:
    yield rights.lacks(message.queue, MANAGE)
    yield from _dead_letter(rights, message.changes)


def _dead_letter(rights: Rights, spec: Mapping[str, Any]) -> Refusals:
    """A dead-letter queue is created where it is missing, and messages go there."""
    target = spec.get("dead_letter")
    if isinstance(target, str):
        yield rights.lacks(target, PUBLISH)
        yield rights.lacks(target, DECLARE)


def _query(rights: Rights, message: wire.QueueQuery) -> Refusals:
    if message.query == "list" or message.queue is None:
        return  # The answer holds only the queues, sessions or users that this one may know of.
    if message.query == "show":
        yield rights.lacks(message.queue, *Permission)
    elif message.query in ("producers", "producers_page"):
        yield rights.lacks(message.queue, PUBLISH, MANAGE)
    else:
        yield rights.lacks(message.queue, CONSUME, MANAGE)


def _move(rights: Rights, message: wire.Move) -> Refusals:
    yield rights.lacks(message.queue, MANAGE)
    yield rights.lacks(message.target, PUBLISH)


def _act(rights: Rights, message: MessageAction) -> Refusals:
    """The source of a dead letter that goes back is asked for when it has been found."""
    yield rights.lacks(message.queue, MANAGE)
    if message.target is not None and message.target != message.queue:
        yield rights.lacks(message.target, PUBLISH)


def _redrive(rights: Rights, message: wire.Redrive) -> Refusals:
    """Without a target, dead letters go where they came from: their source has to be named then,
    for a dead-letter queue may hold those of queues that the user has nothing to do with."""
    options = message.options or {}
    if options.get("dry_run") and options.get("groups"):  # only looked at, as by a peek
        yield rights.lacks(message.queue, CONSUME, MANAGE)
        return
    yield rights.lacks(message.queue, MANAGE)
    if options.get("cancel"):
        return
    chosen = options.get("filter")
    source = chosen.get("source") if isinstance(chosen, dict) else None
    target = message.target if message.target is not None else source
    if isinstance(target, str):
        yield rights.lacks(target, PUBLISH)
    elif "*" not in rights.user.publish:
        yield (
            f"user {rights.user.name} may not redrive to every queue: name a target, or filter by"
            " a source that the user may publish to"
        )


def _pin(rights: Rights, message: Message) -> Refusals:
    """The permissions to what a view shows are asked for with each query and page."""
    user = rights.user
    if not (user.consume or user.manage or rights.may_monitor):
        yield f"user {user.name} may read no queue (consume or manage), and so pin no view"


def _pin_query(rights: Rights, message: pins.PinQuery) -> Refusals:
    if message.queue is not None:
        yield rights.lacks(message.queue, CONSUME, MANAGE)


def _read_pinned(rights: Rights, message: Message) -> Refusals:
    if not rights.user.operate:
        yield f"user {rights.user.name} may not read the whole state (operate = true)"


def _status(rights: Rights, message: Message) -> Refusals:
    if not rights.may_monitor:
        yield f"user {rights.user.name} may not ask for the status of nodes (monitor = true)"


def _operate(rights: Rights, message: Message) -> Refusals:
    if not rights.user.operate:
        yield f"user {rights.user.name} may not change who leads (operate = true)"


def _finish_upgrade(rights: Rights, message: Message) -> Refusals:
    if not rights.user.operate:
        yield f"user {rights.user.name} may not finish an upgrade (operate = true)"


def _change_members(rights: Rights, message: Message) -> Refusals:
    if not rights.user.operate:
        yield f"user {rights.user.name} may not change the members (operate = true)"


def _manage_user(rights: Rights, message: ManageUser) -> Refusals:
    """A user who knows its password may change it, and no more."""
    if message.action == OWN_PASSWORD:
        if not rights.by_password:
            yield (
                f"user {rights.user.name} did not log in by its password, and so may not change it"
            )
    elif not rights.user.operate:
        yield f"user {rights.user.name} may not look at or change users (operate = true)"


def _audit(rights: Rights, message: Message) -> Refusals:
    if not rights.user.operate:
        yield f"user {rights.user.name} may not read the audit log (operate = true)"


_NEEDS.update(
    {
        wire.Publish: _on(PUBLISH),
        wire.PublishAcross: _everybody,  # Its handler asks for each queue.
        wire.OpenProducer: _publisher,  # The answer holds only queues that the user publishes to.
        wire.ForgetProducer: _everybody,  # Its handler asks for each queue it has published to.
        wire.EndSession: _everybody,  # Its handler asks whose session it is.
        wire.Subscribe: _on(CONSUME),
        wire.Get: _on(CONSUME),
        wire.Peek: _on(CONSUME),
        wire.Durable: _on(CONSUME),
        wire.Settle: _everybody,
        wire.Renew: _everybody,
        wire.Credit: _everybody,
        wire.Cancel: _everybody,
        wire.Alive: _everybody,
        wire.NoticeAck: _everybody,
        wire.Close: _everybody,
        wire.Declare: _declare,
        wire.Update: _update,
        wire.QueueAction: _on(MANAGE),
        wire.QueueQuery: _query,
        wire.Move: _move,
        wire.Redrive: _redrive,
        Find: _on(CONSUME, MANAGE),
        MessageAction: _act,
        pins.Pin: _pin,
        pins.Unpin: _everybody,
        pins.PinQuery: _pin_query,  # A list holds only queues that the user may see.
        pins.Page: _on(CONSUME, MANAGE),
        pins.PinRead: _read_pinned,
        wire.Status: _status,
        wire.TransferLeadership: _operate,
        FinishUpgrade: _finish_upgrade,
        ChangeMembers: _change_members,
        ManageUser: _manage_user,
        Audit: _audit,
    }
)
