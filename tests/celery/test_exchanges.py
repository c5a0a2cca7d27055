"""Exchanges, which the broker does not have: where a message goes, what other processes see."""

from __future__ import annotations

import pytest
from amqp.exceptions import NotFound, PreconditionFailed
from hypothesis import given
from hypothesis import strategies as st

from fifo.celery import limits
from fifo.celery.exchanges import TYPES, Binding, Exchanges, from_mark, prefix


class Cluster:
    """Names of queues that a look finds; how often was looked."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.looks = 0
        self.now_s = 0.0

    def names(self, begin: str) -> list[str]:
        self.looks += 1
        return [name for name in self.queues if name.startswith(begin)]

    def exchanges(self) -> Exchanges:
        return Exchanges(self.names, lambda: self.now_s)


def targets(exchanges: Exchanges, exchange: str, routing_key: str) -> list[str]:
    return [binding.queue for binding in exchanges.route(exchange, routing_key)]


@pytest.mark.parametrize(
    ("pattern", "routing_key", "takes"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#.c", "c", True),
        ("#.c", "a.b.c", True),
        ("#.c", "a.c.b", False),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("#", "", True),
        ("#", "a.b", True),
        ("a+b", "aab", False),
    ],
)
def test_a_topic_takes_words(pattern: str, routing_key: str, takes: bool) -> None:
    assert Binding("x", "topic", pattern, "q").takes(routing_key) is takes


def test_a_pattern_of_many_hashes_is_matched_in_no_time() -> None:
    binding = Binding("x", "topic", ".".join(["#", "a"] * 40), "q")
    assert not binding.takes(".".join(["a"] * 60 + ["b"]))


names = st.text(min_size=1, max_size=12)


@pytest.mark.slow
@given(names, st.sampled_from(TYPES), st.text(max_size=12), names)
def test_a_mark_tells_its_binding(exchange: str, kind: str, key: str, queue: str) -> None:
    binding = Binding(exchange, kind, key, queue)
    if binding.mark is None:
        assert (kind, exchange, key) == ("direct", queue, queue)
    else:
        assert binding.mark.startswith(prefix(exchange))
        assert from_mark(binding.mark) == binding


@pytest.mark.parametrize("name", ["orders", "a.bound/", "a.bound/direct/k", "a.bound/odd/k/q"])
def test_other_queues_are_no_marks(name: str) -> None:
    assert from_mark(name) is None


def test_the_exchange_without_a_name_goes_to_the_queue_itself() -> None:
    assert targets(Cluster().exchanges(), "", "orders") == ["orders"]


def test_bindings_of_other_processes_are_found() -> None:
    cluster = Cluster()
    one, other = cluster.exchanges(), cluster.exchanges()
    other.declare("events", "topic", passive=False)
    mark = other.bind("seen", "events", "task.#").mark
    assert mark is not None
    cluster.queues.append(mark)
    assert targets(one, "events", "task.sent") == ["seen"]
    assert targets(one, "events", "worker.online") == []


def test_a_fanout_goes_to_each_queue_once() -> None:
    exchanges = Cluster().exchanges()
    exchanges.declare("all", "fanout", passive=False)
    exchanges.bind("a", "all", "")
    exchanges.bind("a", "all", "again")
    exchanges.bind("b", "all", "")
    assert targets(exchanges, "all", "any") == ["a", "b"]


def test_queues_of_a_topic_are_looked_for_now_and_then() -> None:
    cluster = Cluster()
    exchanges = cluster.exchanges()
    exchanges.declare("events", "topic", passive=False)
    for _ in range(5):
        exchanges.route("events", "any")
    assert cluster.looks == 1
    cluster.now_s = limits.QUEUES_KNOWN_S
    exchanges.route("events", "any")
    assert cluster.looks == 2


def test_a_reply_finds_a_queue_that_was_bound_a_moment_ago() -> None:
    cluster = Cluster()
    exchanges = cluster.exchanges()
    exchanges.declare("replies", "direct", passive=False)
    assert targets(exchanges, "replies", "me") == []
    cluster.queues.append(str(Binding("replies", "direct", "me", "mine").mark))
    assert targets(exchanges, "replies", "me") == ["mine"]


def test_an_unbound_queue_gets_nothing_more() -> None:
    cluster = Cluster()
    exchanges = cluster.exchanges()
    exchanges.declare("all", "fanout", passive=False)
    binding = exchanges.bind("a", "all", "")
    cluster.queues.append(str(binding.mark))
    assert targets(exchanges, "all", "") == ["a"]
    exchanges.unbind(binding)
    assert targets(exchanges, "all", "") == []


def test_exchange_queue_and_key_of_one_name_need_no_mark() -> None:
    exchanges = Cluster().exchanges()
    exchanges.declare("celery", "direct", passive=False)
    assert exchanges.bind("celery", "celery", "celery").mark is None
    assert targets(Cluster().exchanges(), "celery", "celery") == ["celery"]


def test_declaring_again_as_another_type_is_refused() -> None:
    exchanges = Cluster().exchanges()
    exchanges.declare("x", "topic", passive=False)
    exchanges.declare("x", "topic", passive=False)
    with pytest.raises(PreconditionFailed, match="is of type topic, not fanout"):
        exchanges.declare("x", "fanout", passive=False)
    with pytest.raises(PreconditionFailed, match="'headers' is not one of direct, topic, fanout"):
        exchanges.declare("y", "headers", passive=False)


def test_a_passive_declaration_finds_what_any_process_has_bound() -> None:
    cluster = Cluster()
    exchanges = cluster.exchanges()
    with pytest.raises(NotFound, match="no exchange 'x'"):
        exchanges.declare("x", "direct", passive=True)
    cluster.queues.append(str(Binding("x", "fanout", "", "q").mark))
    exchanges.declare("x", "direct", passive=True)
