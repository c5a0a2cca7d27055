"""The verbs that each permission allows: the whole table, and that nothing is missing in it."""

from __future__ import annotations

import pytest

from fifo.wire import messages as wire
from fifo.wire import pins
from fifo.wire.messages import Message
from fifo.wire.operating import MessageAction
from node.broker import limits, permissions
from node.broker.permissions import Rights
from node.broker.requests.table import HANDLERS
from node.users import Permission, User

D, P, C, M = "declare", "publish", "consume", "manage"

TABLE: list[tuple[Message, str]] = [
    (wire.Publish("q", 0, 0, 1, 1, ()), "publish:q"),
    (wire.Subscribe("q", "", 1), "consume:q"),
    (wire.Get("q", 1), "consume:q"),
    (wire.Peek("q"), "consume:q"),
    (wire.Durable("q", "d", "fetch"), "consume:q"),
    (wire.Durable("q", "d", "forget"), "consume:q"),
    (wire.Declare("q", {}), "declare:q"),
    (wire.Declare("q", {"dead_letter": "d"}), "declare:q publish:d declare:d"),
    (wire.Update("q", {"max_length": 1}), "manage:q"),
    (wire.Update("q", {"dead_letter": "d"}), "manage:q publish:d declare:d"),
    (wire.Update("q", {"dead_letter": None}), "manage:q"),
    (wire.QueueAction("q", "purge"), "manage:q"),
    (wire.QueueAction("q", "delete"), "manage:q"),
    (wire.Move("q", "d"), "manage:q publish:d"),
    (MessageAction("q", "1.1.1", "unlock"), "manage:q"),
    (MessageAction("q", "1.1.1", "move", target="d"), "manage:q publish:d"),
    (wire.Redrive("q", "d"), "manage:q publish:d"),
    (wire.Redrive("q", None, {"filter": {"source": "d"}}), "manage:q publish:d"),
    (wire.Redrive("q", "d", {"filter": {"source": "s"}}), "manage:q publish:d"),
    (wire.Redrive("q"), "manage:q publish:*"),
    (wire.Redrive("q", None, {"filter": {"source": 7}, "dry_run": True}), "manage:q publish:*"),
    (wire.Redrive("q", None, {"cancel": True}), "manage:q"),
    (wire.Redrive("q", None, {"dry_run": True, "groups": True}), "consume:q"),
]


def rights(grants: str, **fields: bool) -> Rights:
    """A user with these permissions, written as `permission:pattern` words."""
    patterns: dict[str, tuple[str, ...]] = {}
    for grant in grants.split():
        permission, _, pattern = grant.partition(":")
        patterns[permission] = (*patterns.get(permission, ()), pattern)
    return Rights(User("ann", None, None, **fields, **patterns))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(("message", "grants"), TABLE)
def test_a_request_needs_every_permission_of_its_line(message: Message, grants: str) -> None:
    assert rights(grants).refusal(message) is None
    wanted = grants.split()
    for missing in wanted:
        fewer = rights(" ".join(one for one in wanted if one != missing))
        assert fewer.refusal(message) is not None
    others = " ".join(f"{one}:{name}" for one in Permission for name in ("other", "q.x", "*.q"))
    assert rights(others).refusal(message) is not None


@pytest.mark.parametrize(
    ("pattern", "queue", "others"),
    [
        ("jobs[*]", "jobs*", ("jobs", "jobs1", "jobs[*]")),
        ("jobs[?]", "jobs?", ("jobs1", "jobs[?]")),
        ("jobs[[]1]", "jobs[1]", ("jobs1", "jobs[[]1]")),
        ("jobs[[]*]", "jobs[42]", ("jobs42", "jobs[42")),
    ],
)
def test_a_special_character_in_brackets_is_itself(
    pattern: str, queue: str, others: tuple[str, ...]
) -> None:
    user = rights(f"consume:{pattern}")
    assert user.refusal(wire.Get(queue, 1)) is None
    assert all(user.refusal(wire.Get(other, 1)) is not None for other in others)


def test_a_producer_is_opened_only_by_a_user_who_may_publish_somewhere() -> None:
    message = wire.OpenProducer("loader")
    assert rights("publish:orders.*").refusal(message) is None
    for grants in ("", "consume:q manage:q declare:q"):
        assert rights(grants).refusal(message) == (
            "user ann has no permission to publish on any queue"
        )


@pytest.mark.parametrize("query", ["locks", "delayed", "consumers"])
def test_who_consumes_or_manages_a_queue_may_look_into_it(query: str) -> None:
    message = wire.QueueQuery("q", query)
    assert rights("consume:q").refusal(message) is None
    assert rights("manage:q").refusal(message) is None
    assert rights("publish:q declare:q").refusal(message) is not None


def test_a_queue_is_shown_to_users_with_any_permission_on_it() -> None:
    for one in Permission:
        assert rights(f"{one}:q").refusal(wire.QueueQuery("q", "show")) is None
        assert rights(f"{one}:q").sees("q")
        assert not rights(f"{one}:q").sees("r")
    assert rights("").refusal(wire.QueueQuery("q", "show")) is not None


def test_nodes_are_shown_to_monitors_and_moved_by_operators() -> None:
    status, transfer = wire.Status(), wire.TransferLeadership("n2")
    everything = " ".join(f"{one}:*" for one in Permission)
    assert rights(everything).refusal(status) is not None
    assert rights(everything).refusal(transfer) is not None
    assert rights("", monitor=True).refusal(status) is None
    assert rights("", monitor=True).refusal(transfer) is not None
    assert rights("", operate=True).refusal(status) is None
    assert rights("", operate=True).refusal(transfer) is None


def test_every_request_that_a_node_serves_has_a_line_and_others_are_denied() -> None:
    assert not HANDLERS.keys() - permissions._NEEDS.keys()
    everything = rights(" ".join(f"{one}:*" for one in Permission), monitor=True, operate=True)
    refusal = everything.refusal(wire.Welcome(1, "n1", b"", 1))
    assert refusal == "user ann may not ask for Welcome"


def test_the_remembered_permissions_of_a_user_are_bounded() -> None:
    ann = rights("publish:*")
    for i in range(3 * limits.RIGHTS_KNOWN_MAX):
        assert ann.may(Permission.PUBLISH, f"q{i}")
        assert len(ann._known) <= limits.RIGHTS_KNOWN_MAX


def test_a_view_is_pinned_by_readers_and_shows_what_each_may_see() -> None:
    page, queues = pins.Page(b"p" * 16, "q"), pins.PinQuery(b"p" * 16, "queues")
    consumers = pins.PinQuery(b"p" * 16, "consumers", "q")
    for reader in (rights("consume:q"), rights("manage:q")):
        for message in (pins.Pin(), page, queues, consumers):
            assert reader.refusal(message) is None
        assert reader.refusal(pins.Page(b"p" * 16, "r")) is not None
        assert reader.refusal(pins.PinQuery(b"p" * 16, "ranges", "r")) is not None
    assert rights("publish:q declare:q").refusal(pins.Pin()) is not None
    assert rights("", monitor=True).refusal(pins.Pin()) is None
    assert rights("", monitor=True).refusal(page) is not None
