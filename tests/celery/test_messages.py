"""kombu's messages as fifo's, and AMQP's arguments of queues as fifo's options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu.utils import json

import fifo
from fifo.celery import limits, messages, queues
from fifo.celery.connected import TransportOptions
from fifo.celery.transport import Transport


def prepared(body: Any = b"{}", priority: int | None = None, **headers: Any) -> dict[str, Any]:
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


def test_a_lock_is_kept_for_as_long_as_its_process_lives() -> None:
    options = TransportOptions.checked({}).of_consumer({"x-priority": 5})
    assert options == {"max_lock": 7 * 86_400, "priority": 5}


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
