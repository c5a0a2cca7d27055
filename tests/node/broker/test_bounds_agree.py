"""What a client may send is what the machine takes: one truth, though the rooms know nobody.

The protocol's bounds stand in `fifo.wire.limits`, the machine's in `fifo.machine.limits`; where
both bound one thing they are the same, or a client would be told yes by one and no by the other.
"""

import pytest

from fifo.client import limits as client
from fifo.machine import commands, spec
from fifo.machine import limits as machine
from fifo.machine.replies import Refused
from fifo.machine.types import Code
from fifo.wire import limits as wire
from fifo.wire import messages
from fifo.wire.errors import Code as WireCode
from fifo.wire.fields import FieldError
from node.broker.refusals import wire_code

SAME = {
    "BODY_BYTES_MAX": machine.BODY_BYTES,
    "PUBLISH_MESSAGES_MAX": machine.PUBLISH_MESSAGES,
    "HEADERS_BYTES_MAX": machine.HEADERS_BYTES,
    "KEY_BYTES_MAX": machine.KEY_BYTES,
    "DEDUP_ID_BYTES_MAX": machine.DEDUP_ID_BYTES,
    "QUEUE_NAME_BYTES_MAX": machine.QUEUE_NAME_BYTES,
    "LETTER_TEXT_BYTES_MAX": machine.TEXT_BYTES,
    "SETTLE_RANGES_MAX": machine.SETTLE_RANGES,
    "GET_MESSAGES_MAX": machine.GET_MESSAGES,
    "CONSUMER_PRIORITY_MAX": machine.CONSUMER_PRIORITY,
    "PREFETCH_MAX": machine.PREFETCH,
    "CREDIT_MAX": machine.CREDIT_MAX,
    "DURATION_MS_MAX": machine.DURATION_MS,
}


@pytest.mark.parametrize(("name", "bound"), list(SAME.items()), ids=list(SAME))
def test_protocol_and_machine_have_the_same_bound(name: str, bound: int) -> None:
    assert getattr(wire, name) == bound


def test_client_and_machine_have_the_same_bounds() -> None:
    assert client.LOCK_S_MIN * 1_000 == machine.LOCK_MS_MIN
    assert client.LOCK_S_MAX * 1_000 == machine.LOCK_MS_MAX
    assert client.BACKOFF_TABLE_MAX == machine.BACKOFF_TABLE
    assert client.SETTLE_TOKENS == machine.SETTLE_MESSAGES
    assert machine.LABEL_BYTES == wire.QUEUE_NAME_BYTES_MAX


def test_what_the_protocol_lets_through_the_machine_takes_and_no_more() -> None:
    highest = messages.from_fields(messages.Subscribe, ["q", "t", 1, None, None, 1_000])
    assert isinstance(highest, messages.Subscribe)
    spec.consumer_options({"priority": highest.priority})
    most = messages.from_fields(messages.Get, ["q", wire.GET_MESSAGES_MAX])
    assert isinstance(most, messages.Get)
    commands.from_list([19, 1, "q", most.count])
    spread = [[2 * n, 2 * n] for n in range(1, wire.SETTLE_RANGES_MAX + 1)]
    settled = messages.from_fields(messages.Settle, [1, 1, spread, 0, wire.DURATION_MS_MAX])
    assert isinstance(settled, messages.Settle)
    commands.from_list([21, 1, 1, settled.verb, settled.tokens, settled.delay_ms])
    for kind, beyond in (
        (messages.Subscribe, ["q", "t", 1, None, None, 1_001]),
        (messages.Get, ["q", wire.GET_MESSAGES_MAX + 1]),
        (messages.Settle, [1, 1, [*spread, [10**6, 10**6]], 0]),
        (messages.Settle, [1, 1, [], 0, wire.DURATION_MS_MAX + 1]),
    ):
        with pytest.raises(FieldError):
            messages.from_fields(kind, beyond)


def test_every_refusal_of_the_machine_has_a_code_of_the_protocol() -> None:
    codes = [value for name, value in vars(Code).items() if name.isupper()]
    assert codes
    assert {wire_code(Refused(code, "no")) for code in codes} <= set(WireCode)
