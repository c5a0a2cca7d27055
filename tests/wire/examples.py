"""The table of examples: every message of the registry once, no field at its default.

Owns the examples only; `test_messages` fails when a message of the registry is missing here, or
when an example leaves a field at its default. A change here needs no change elsewhere.
"""

from typing import Final

from fifo.wire import encode
from fifo.wire.membership import ChangeMembers
from fifo.wire.messages import (
    Alive,
    Authenticate,
    Cancel,
    Challenge,
    Close,
    Confirms,
    Credit,
    Declare,
    Deliver,
    Durable,
    EndSession,
    Error,
    ForgetProducer,
    Get,
    Got,
    Hello,
    Message,
    Move,
    Notice,
    NoticeAck,
    Ok,
    OpenProducer,
    Peek,
    Peeked,
    Ping,
    Pong,
    Publish,
    PublishAcross,
    QueueAction,
    QueueQuery,
    Receipt,
    Redirect,
    Redrive,
    Renew,
    Renewed,
    Resumed,
    Settle,
    Status,
    Subscribe,
    Subscribed,
    TransferLeadership,
    Update,
    Welcome,
)
from fifo.wire.operating import Audit, Find, ManageUser, MessageAction
from fifo.wire.pins import Page, Paged, Pin, PinPiece, PinQuery, PinRead, Unpin
from fifo.wire.upgrading import FinishUpgrade

SESSION: Final = bytes(range(16))
INCARNATION: Final = bytes(range(16, 32))
NODES: Final = (("n1", "127.0.0.1:7101"), ("n2", "127.0.0.1:7111"))

EXAMPLES: Final[tuple[Message, ...]] = (
    Hello(1, 2, 1, SESSION, INCARNATION, "tests", ("x",), "ann", "plain", 4_000, True, 7, "n1"),
    Welcome(
        1,
        "n1",
        b"cluster",
        7,
        session_state=1,
        epoch=3,
        heartbeat_ms=4_000,
        features=("x",),
        nodes=NODES,
        consumers=((5, "tag", "orders", 30_000),),
        limits=(("body_bytes", 1 << 20),),
        queue_below=13,
        handle_key=b"secret",
    ),
    Challenge("scram", b"nonce"),
    Authenticate("scram", b"proof"),
    Redirect("n2", "127.0.0.1:7111", 250, NODES, True),
    Ping(NODES),
    Pong(),
    Error("queue_full", "the queue is full", True, {"ready": 3, "why": [None, 1.5, b"x"]}),
    Close(),
    Ok({"created": True, "queues": ["a", {"b": [1]}]}),
    Resumed(),
    Publish("orders", 9, 41, 42, 2, ((0, 8), (5, 2)), 12),
    Confirms(
        (
            (3, 1, 9, 0, 2, None),
            (4, 1, 9, 1, 0, ("gap", "expected 42", True, {"last": 41})),
            (5, 1, 9, 0, 4, None, ((1, 2, 8, 40), (3, 1, 9, 7))),
        )
    ),
    OpenProducer("loader"),
    PublishAcross(9, ("orders", "bills"), 3, ((11, 16), (12, 8), (13, 16), (14, 16), (0, 12))),
    Subscribe(
        "orders",
        "worker",
        100,
        lock_ms=30_000,
        max_lock_ms=3_600_000,
        priority=-1,
        renewable=False,
        pull=True,
        nack_backoff="fixed:1s",
        timeout_backoff="table:1s,5s",
        handler_timeout_ms=60_000,
        renewals=3,
        label="mine",
    ),
    Subscribed(5, 30_000, 3_600_000, 100, False, True),
    Credit(5, 10, True, True),
    Cancel(5, ((1, 3), (5, 5))),
    Get("orders", 10, 1_000, 30_000, True),
    Got(5, 17, 10, True),
    Deliver(
        5,
        "orders",
        17,
        2,
        30_000,
        ((0, 8), (16, 8)),
        ((2, 1, 9, 42, 1_700_000_000_000),),
        dead_letters=((0, {"reason": "terminated"}),),
        repeat=True,
        label="mine",
        keys_out=True,
    ),
    Settle(
        5,
        1,
        ((1, 3), (5, 5)),
        resolved_below=1,
        delay_ms=500,
        reason="busy",
        description="later",
        exception_type="ValueError",
        exception_text="no",
        stack="at line 1",
        automatic=True,
        handles=(b"h" * 16,),
        generation=3,
    ),
    Receipt(5, ((1, 3, 0, False), (5, 5, 2, True))),
    Renew(((5, ((1, 3), (5, 5))), (6, ())), True, (bytes(range(16)),)),
    Renewed(((5, ((1, 3, 30_000),), ((5, 5),)),)),
    Alive(5, 2),
    Notice(8, 1, 5, ((1, 3),), False, "mine"),
    NoticeAck(8),
    Declare("orders", {"lock_ms": 30_000, "dead_letter": "orders.dlq"}),
    Update("orders", {"max_length": None}, "5f3c"),
    QueueAction("orders", "purge"),
    QueueQuery("orders", "consumers", 10, 7, "orders"),
    Peek("orders", 5),
    Peeked(
        "orders",
        1,
        ((0, 4),),
        ((1, 1, 9, 42, 0),),
        ((0, {"reason": "expired"}),),
        ({"place": "ready"},),
        17,
    ),
    Redrive("orders.dlq", "orders", {"limit": 10}),
    Move("orders", "later", 10),
    Durable(
        "orders",
        "reader",
        "open",
        3,
        1,
        100,
        {"lock_ms": 60_000},
        7,
        1_000,
        bodies=False,
        runs=True,
    ),
    Status(),
    TransferLeadership("n2"),
    ForgetProducer("loader"),
    EndSession("00c0ffee"),
    Find(
        *("orders", "1.9.42", b"k", "locked", 17, 5, "ValueError", "at Shop.pay"),
        *((("n", "1"),), 1_700_000_000_000),
    ),
    MessageAction(
        "orders", "1.9.42", "resend", "17-5-3-0", "later", 500, "busy", "by hand", ((0, 4),)
    ),
    ManageUser("add_token", "ann", {"token": "ci", "digest": bytes(32)}),
    Audit("orders", "ann", 1_700_000_000_000, "17.3", 10),
    Pin(42, 5_000, True),
    Unpin(b"p" * 16),
    PinQuery(b"p" * 16, "consumers", "orders", 7, 100),
    Page(
        *(b"p" * 16, "orders", 17, 99, 5, "dead", b"k", (("n", "1"),), "expired", "ValueError"),
        *(False, "at Shop.pay", 1_700_000_000_000),
    ),
    Paged(
        "orders",
        1,
        ((0, 4),),
        ((1, 1, 9, 42, 0),),
        ((0, {"reason": "expired"}),),
        ((1, 17, 2, 0, 0, 0, 500, "nack"),),
        18,
    ),
    PinRead(b"p" * 16, "state", 65_536, False),
    PinPiece(131_072, True, b"d" * 32, ((17, 400),)),
    ChangeMembers("replace", "n4", "n1", "10.0.0.4:7102", "10.0.0.4:7101", "10.0.0.4:7103"),
    FinishUpgrade(),
)

BY_NAME: Final = {type(example).__name__: example for example in EXAMPLES}


def joined(message: Message, correlation: int = 0, raw: bytes = b"") -> bytes:
    """The bytes of one frame."""
    return b"".join(encode(message, correlation, [raw] if raw else []))


def stream() -> bytes:
    """Every example in one stream, every other one with a raw part."""
    return b"".join(
        joined(example, at, b"raw" * (at % 2) * at) for at, example in enumerate(EXAMPLES)
    )
