"""kombu's messages as fifo's, and AMQP's arguments of queues as fifo's options."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu.utils import json

import fifo
from fifo.celery import limits, messages, queues
from fifo.celery.connected import TransportOptions
from fifo.celery.transport import Transport


def prepared(body: Any = b"{}", priority: Any = None, **headers: Any) -> dict[str, Any]:
    return messages.prepared(
        body, priority, "application/json", "utf-8", headers, {"delivery_mode": 2, "reply_to": "r"}
    )


def test_the_body_stays_as_it_is_and_the_rest_is_beside_it() -> None:
    found = messages.publication(prepared("ä", task="t", id="1", retries=0), "x", "k")
    assert found.body == "ä".encode()
    assert found.headers["task"] == "t"
    assert found.headers["id"] == "1"
    own = json.loads(found.headers[messages.KOMBU])
    assert own["headers"] == {"task": "t", "id": "1", "retries": 0}
    assert own["properties"]["reply_to"] == "r"
    assert (own["exchange"], own["routing_key"], own["type"]) == ("x", "k", "application/json")


@pytest.mark.parametrize(("given", "found"), [(None, 0), (3, 3), (9, 9), (12, 9), (-1, 0)])
def test_priorities_are_those_of_amqp(given: int | None, found: int) -> None:
    assert messages.publication(prepared(priority=given), "", "q").priority == found


def test_an_eta_is_a_delay() -> None:
    due = datetime.now(UTC) + timedelta(minutes=2)
    delay_s = messages.publication(prepared(eta=due.isoformat()), "", "q").delay_s
    assert delay_s is not None
    assert 110 < delay_s <= 120
    naive = due.replace(tzinfo=None)
    delay_s = messages.publication(prepared(eta=naive.isoformat()), "", "q").delay_s
    assert delay_s is not None
    assert 110 < delay_s <= 120


def test_an_eta_that_is_past_is_none() -> None:
    due = datetime.now(UTC) - timedelta(minutes=2)
    assert messages.publication(prepared(eta=due.isoformat()), "", "q").delay_s is None
    assert messages.publication(prepared(eta=None), "", "q").delay_s is None


class Delivered:
    """A message as a worker gets it."""

    queue, attempt, priority = "q", 1, 0

    def __init__(self, sent: messages.Publication) -> None:
        self.body, self.headers = sent.body, sent.headers


def eta_of_worker(sent: messages.Publication) -> datetime | None:
    message: Any = Delivered(sent)
    eta = messages.received(message, "1", "tag")["headers"]["eta"]
    return None if eta is None else datetime.fromisoformat(eta)


def test_what_has_waited_in_the_broker_is_due_by_the_clock_of_the_worker() -> None:
    """That clock is behind the broker's here: an hour is left of the ETA."""
    due = datetime.now(UTC) + timedelta(hours=1)
    found = eta_of_worker(messages.publication(prepared(eta=due.isoformat()), "", "q"))
    assert found is not None
    assert found <= datetime.now(UTC)


def test_an_eta_that_is_past_stays_as_it_is() -> None:
    due = datetime.now(UTC) - timedelta(hours=1)
    sent = messages.publication(prepared(eta=due.isoformat()), "", "q")
    assert eta_of_worker(sent) == due
    assert eta_of_worker(messages.publication(prepared(eta=None), "", "q")) is None


def test_an_eta_beyond_the_longest_delay_stays_for_the_worker() -> None:
    due = datetime.now(UTC) + timedelta(days=11 * 365)
    assert eta_of_worker(messages.publication(prepared(eta=due.isoformat()), "", "q")) == due


def test_an_expiration_is_a_time_to_live() -> None:
    message = prepared()
    assert messages.publication(message, "", "q").ttl_s is None
    message["properties"]["expiration"] = "1500"
    assert messages.publication(message, "", "q").ttl_s == 1.5


def test_only_delivery_mode_1_may_be_lost() -> None:
    message = prepared()
    assert not messages.is_transient(message)
    message["properties"]["delivery_mode"] = 1
    assert messages.is_transient(message)


def test_arguments_of_amqp_are_options() -> None:
    arguments = {
        "x-expires": 10_000,
        "x-message-ttl": 5_000,
        "x-max-length": 7,
        "x-delivery-limit": 3,
        "x-dead-letter-routing-key": "dead",
        "x-single-active-consumer": True,
        "x-max-priority": 10,
        "x-queue-type": "quorum",
    }
    found = queues.spec("q", arguments, {"lock": 5}, is_transient=False)
    assert found == fifo.QueueSpec(
        "q",
        lock=5,
        expires_unused=10,
        ttl=5,
        max_length=7,
        overflow="drop_oldest",
        max_deliveries=3,
        dead_letter="dead",
        ordering="single_active",
    )
    refusing = {"x-max-length": 7, "x-overflow": "reject-publish"}
    assert queues.spec("q", refusing, {}, is_transient=False).overflow == "reject"


def test_a_queue_that_lasts_keeps_what_is_rejected_and_not_what_expires() -> None:
    found = queues.spec("q", {}, {}, is_transient=False)
    assert found == fifo.QueueSpec("q", dead_letter="q.dead", dead_letter_expired=False)
    (dead,) = queues.dead_letters(found)
    assert dead == fifo.QueueSpec("q.dead", ttl=limits.DEAD_TTL_S)
    own = queues.spec("q", {}, {"dead_letter": "failed"}, is_transient=False)
    assert (own.dead_letter, own.dead_letter_expired) == ("failed", None)
    assert list(queues.dead_letters(own)) == []
    for name, options in (("q", {"dead_letter": None}), ("q.dead", {})):
        assert queues.spec(name, {}, options, is_transient=False).dead_letter is None


def test_a_queue_of_one_process_goes_with_it() -> None:
    found = queues.spec("q", {}, {}, is_transient=True)
    assert found.expires_unused == limits.TRANSIENT_EXPIRES_S
    found = queues.spec("q", {"x-expires": 10_000}, {}, is_transient=True)
    assert found.expires_unused == 10


def test_what_is_ignored_is_named(caplog: pytest.LogCaptureFixture) -> None:
    queues.spec("q", {"x-odd": 1, "x-dead-letter-exchange": "dlx"}, {}, is_transient=False)
    assert [record.getMessage() for record in caplog.records] == [
        "queue q: the argument x-odd=1 is ignored",
        "queue q: x-dead-letter-exchange 'dlx' is ignored: dead letters go to the queue that"
        " x-dead-letter-routing-key names",
    ]


def test_transport_options_are_checked_by_name() -> None:
    given = {"queue": {"lock": 5}, "queues": {"slow": {"lock": 60}}, "max_retries": 3}
    options = TransportOptions.checked(given)
    assert options.of_queue("any") == {"lock": 5}
    assert options.of_queue("slow") == {"lock": 60}
    with pytest.raises(fifo.InvalidArgument, match="'visibility_timeout' is not known; use queue"):
        TransportOptions.checked({"visibility_timeout": 3600})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("lock=5", "broker_transport_options: must be a mapping of names, not 'lock=5'"),
        ({"queue": "orders"}, "broker_transport_options: queue: must be a mapping of names, not"),
        ({"queue": {"lck": 5}}, "broker_transport_options: queue: lck: a queue has no such opti"),
        ({"queues": {"q": {"ttl": "1"}}}, "broker_transport_options: queues: q: ttl: must be sec"),
        ({"consumer": {"prefetch": 5}}, "broker_transport_options: consumer: prefetch: Celery c"),
        ({"connection": {"nam": "x"}}, "broker_transport_options: connection: nam: a connection "),
        ({"connection": {"timeout": "1"}}, "broker_transport_options: connection: timeout: must"),
        ({"connection": 5}, "broker_transport_options: connection: must be a mapping of names, n"),
    ],
)
def test_a_wrong_transport_option_is_named_with_its_place(given: Any, text: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=f"^{text}"):
        TransportOptions.checked(given)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-expires": "soon"}, "queue q: the argument x-expires (milliseconds): must be a whole"),
        ({"x-max-length": None}, "queue q: the argument x-max-length: must be a whole number, no"),
        ({"x-overflow": "odd"}, "queue q: the argument x-overflow: must be one of drop-head, rej"),
        ({"x-delivery-limit": 0}, "queue q: max_deliveries: must be from 1 to"),
    ],
)
def test_a_wrong_argument_of_a_queue_is_named_with_the_queue(arguments: Any, text: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=f"^{re.escape(text)}"):
        queues.spec("q", arguments, {}, is_transient=False)


def test_a_wrong_priority_of_a_consumer_is_named() -> None:
    with pytest.raises(fifo.InvalidArgument, match=r"^x-priority: must be a whole number, not 'hi"):
        TransportOptions.checked({}).of_consumer({"x-priority": "high"})


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (prepared(eta="soon"), "eta: must be a date of ISO 8601, not 'soon'"),
        (prepared(priority="high"), "priority: must be a whole number, not 'high'"),
        (prepared(body=5), "body: must be bytes, not int"),
        ({**prepared(), "properties": {"expiration": "1 s"}}, "expiration: must be a whole numbe"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused(message: Any, text: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=f"^{text}"):
        messages.publication(message, "", "q")


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("{", "its header 'kombu' is no JSON of kombu's: "),
        ("[1]", "its header 'kombu' is no JSON object, but list"),
        ('{"headers": 5}', "its header 'kombu' has headers=5, which is no dict"),
        ('{"type": {}}', "its header 'kombu' has type={}, which is no str"),
        ('{"__type__": "odd", "__value__": 1}', "its header 'kombu' is no JSON of kombu's: "),
        ("[" * 100_000, "its header 'kombu' is no JSON of kombu's: "),
    ],
)
def test_a_header_that_no_transport_has_written_is_named(header: str, text: str) -> None:
    message: Any = Delivered(messages.Publication(b"", {"kombu": header}, None, None, 0))
    with pytest.raises(messages.Unreadable, match=f"^{re.escape(text)}"):
        messages.received(message, "1", "tag")


def test_an_eta_that_is_no_date_is_left_to_celery_which_refuses_the_task() -> None:
    header = json.dumps({"headers": {"eta": "soon"}, "waits": True})
    message: Any = Delivered(messages.Publication(b"", {"kombu": header}, None, None, 0))
    assert messages.received(message, "1", "tag")["headers"] == {"eta": "soon"}


def test_a_lock_is_kept_for_as_long_as_its_process_lives() -> None:
    options = TransportOptions.checked({}).of_consumer({"x-priority": 5})
    assert options == {"max_lock": 7 * 86_400, "pull": False, "priority": 5}


def test_a_missing_permission_is_no_lost_connection_after_which_kombu_tries_again() -> None:
    """Both classes are errors of the system by name, and so is a lost connection."""
    for error in (fifo.PermissionDenied, fifo.AuthenticationFailed, fifo.InvalidArgument):
        assert not issubclass(error, Transport.connection_errors)
    for lost in (fifo.ConnectionLost, fifo.SessionEnded, ConnectionResetError, socket.gaierror):
        assert issubclass(lost, Transport.connection_errors)


def test_a_url_is_shown_without_its_password() -> None:
    show = Transport(None).as_uri
    url = "fifo://ann:secret@a:1,b:2?name=x"
    assert show(url) == "fifo://ann:**@a:1,b:2?name=x"
    assert show(url, include_password=True) == url
    assert show("fifo://a:1,b:2") == "fifo://a:1,b:2"


def test_properties_that_amqp_does_not_have_are_left_out_as_by_its_own_client() -> None:
    strange = {"correlation_id": "c", "sender": object(), "shadow": "s"}
    message = messages.prepared(b"x", None, "text/plain", "utf-8", {}, strange)
    found = json.loads(messages.publication(message, "", "q").headers[messages.KOMBU])
    assert found["properties"] == {"correlation_id": "c", "priority": 0}
