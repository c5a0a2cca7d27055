"""The table of requests: which handler serves which message.

Owns the table. A message that is not in it is no request to a session.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fifo.wire import messages as wire
from fifo.wire.membership import ChangeMembers
from fifo.wire.messages import Message
from fifo.wire.operating import Audit, Find, ManageUser, MessageAction
from fifo.wire.upgrading import FinishUpgrade
from node.broker.requests.audit_reads import AuditReads
from node.broker.requests.changing_members import ChangingMembers
from node.broker.requests.consuming import Consuming
from node.broker.requests.control import Control
from node.broker.requests.durables import Durables
from node.broker.requests.managing_users import ManagingUsers
from node.broker.requests.notices import NoticeAcks
from node.broker.requests.one_message import OneMessage
from node.broker.requests.people import People
from node.broker.requests.proposer import Handler
from node.broker.requests.publishing import Publishing
from node.broker.requests.publishing_across import PublishingAcross
from node.broker.requests.queries import Queries
from node.broker.requests.queues import Queues
from node.broker.requests.redrives import Redrives
from node.broker.requests.renewal import Renewals
from node.broker.requests.upgrading import Upgrading


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of one term."""

    publishing: Publishing
    publishing_across: PublishingAcross
    consuming: Consuming
    notices: NoticeAcks
    renewals: Renewals
    queues: Queues
    queries: Queries
    durables: Durables
    redrives: Redrives
    one_message: OneMessage
    people: People
    managing_users: ManagingUsers
    control: Control
    audit_reads: AuditReads
    upgrading: Upgrading
    changing_members: ChangingMembers


HANDLERS: Final[dict[type[Message], Callable[[Handlers], Handler]]] = {
    wire.Publish: lambda term: term.publishing.publish,
    wire.PublishAcross: lambda term: term.publishing_across.publish,
    wire.OpenProducer: lambda term: term.publishing.open_producer,
    wire.ForgetProducer: lambda term: term.publishing.forget_producer,
    wire.Subscribe: lambda term: term.consuming.subscribe,
    wire.Cancel: lambda term: term.consuming.cancel,
    wire.Credit: lambda term: term.consuming.credit,
    wire.Get: lambda term: term.consuming.get,
    wire.Settle: lambda term: term.consuming.settle,
    wire.Alive: lambda term: term.consuming.alive,
    wire.NoticeAck: lambda term: term.notices.acknowledge,
    wire.Renew: lambda term: term.renewals.renew,
    wire.Declare: lambda term: term.queues.declare,
    wire.Update: lambda term: term.queues.update,
    wire.QueueAction: lambda term: term.queues.action,
    wire.QueueQuery: lambda term: term.queries.query,
    wire.Peek: lambda term: term.queries.peek,
    Find: lambda term: term.one_message.find,
    MessageAction: lambda term: term.one_message.act,
    wire.Durable: lambda term: term.durables.durable,
    wire.Redrive: lambda term: term.redrives.redrive,
    wire.Move: lambda term: term.redrives.move,
    wire.EndSession: lambda term: term.people.end_session,
    ManageUser: lambda term: term.managing_users.manage,
    Audit: lambda term: term.audit_reads.read,
    wire.Close: lambda term: term.control.close,
    wire.TransferLeadership: lambda term: term.control.transfer,
    FinishUpgrade: lambda term: term.upgrading.finish,
    ChangeMembers: lambda term: term.changing_members.change,
}


_CAPITAL: Final = re.compile(r"(?<=.)(?=[A-Z])")

VERBS: Final = {kind: _CAPITAL.sub("_", kind.__name__).lower() for kind in (*HANDLERS, wire.Status)}
"""The name of each request for operators: `QueueQuery` is `queue_query`."""


def bound(handlers: Handlers) -> dict[type[Message], Handler]:
    """The handler of each message in one term."""
    return {kind: of(handlers) for kind, of in HANDLERS.items()}
