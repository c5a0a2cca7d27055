"""Proves the queries that `fifo.machine.contract` promises to other rooms."""

from fifo.machine import Machine, commands, contract
from tests.support.machine import Bench


def test_every_name_of_the_contract_exists_once() -> None:
    """`__all__` is the list that a reader goes by."""
    assert len(set(contract.__all__)) == len(contract.__all__)
    assert all(hasattr(contract, name) for name in contract.__all__)


def test_queries_of_missing_objects_are_empty() -> None:
    """A request may name anything; no query raises."""
    machine = Bench().machine
    assert not machine.has_queue("q")
    assert machine.queue_figures(1) is None
    assert machine.consumer_figures(1) is None
    assert machine.session_status(1) is None
    assert machine.redrive("q") is None
    assert machine.running_redrive("q") is None
    assert machine.ends("q") is None
    assert machine.durable("q", "d") is None
    assert machine.epochs_and_consumers(1) is None
    assert machine.ready("q") == machine.ready_for_get("q") == machine.purged("q") == 0
    assert machine.max_lock_ms(1) == machine.held_count(1) == 0
    assert machine.burden(1) == (0, 0)
    assert not machine.takes_more("q")
    assert not machine.drops_oldest("q")
    assert not machine.is_purging("q")
    assert not machine.running_redrives()
    assert not machine.queue_numbers()
    assert not machine.consumer_numbers()


def test_depths_and_states_say_what_happened() -> None:
    """A queue with a single consumer, which holds two of three messages."""
    bench = Bench()
    session = bench.attach()
    bench.declare("q", max_length=3)
    bench.publish(session, "q", "a", "b", "c")
    consumer = bench.subscribe(session, "q", prefetch=2).consumer
    machine = bench.machine
    figures = machine.queue_figures(1)
    assert figures is not None
    assert figures[:6] == ("q", 1, 2, 0, 3, 0)
    assert figures.counters["published"] == 3
    assert machine.consumer_figures(consumer) == ("q", ("up",), 0)
    assert machine.session_status(session) == "connected"
    assert machine.burden(session) == (1, 2)
    assert machine.held_count(consumer) == 2
    assert not machine.takes_more("q")
    bench.disconnect(session)
    assert machine.session_status(session) == "disconnected"
    assert machine.consumer_figures(consumer) == ("q", ("disconnected",), 0)


def test_the_oldest_ready_message_is_the_oldest_of_those_that_stand_first() -> None:
    """Of each priority the first in line; a message that came back stands where it stood."""
    bench = Bench()
    session = bench.attach()
    bench.declare("q", priorities=True)

    def oldest_ms() -> int | None:
        figures = bench.machine.queue_figures(1)
        assert figures is not None
        return figures.oldest_ready_ms

    assert oldest_ms() is None
    for now_ms, priority in ((100, 9), (200, 0), (300, 9)):
        bench.now = now_ms
        bench.publish(session, "q", "x", priorities=[priority])
    assert oldest_ms() == 100
    consumer = bench.subscribe(session, "q", prefetch=1).consumer
    assert oldest_ms() == 200
    found = bench.machine.consumer_figures(consumer)
    assert found is not None
    assert found.oldest_lock_ms == 300
    bench.do(commands.Cancel(session, consumer))
    bench.release(consumer, 1)
    assert oldest_ms() == 100
    bench.do(commands.Purge("q"))
    assert oldest_ms() is None


def test_the_counters_of_deleted_queues_are_kept_together() -> None:
    bench = Bench()
    session = bench.attach()
    for name in ("a", "b", "c"):
        bench.declare(name)
        bench.publish(session, name, "x", "y")
    assert bench.machine.gone_counters() == {}
    bench.do(commands.DeleteQueue("a"))
    bench.do(commands.DeleteQueue("c"))
    machine = Machine.restore(bench.machine.snapshot())
    assert machine.gone_counters() == bench.machine.gone_counters() == {"published": 4}


def test_a_redrive_is_running_until_it_ends() -> None:
    """`redrive` keeps the last one, `running_redrive` forgets it."""
    bench = Bench()
    bench.declare("q")
    bench.declare("t")
    bench.do(commands.Redrive("q", "t", {}, None, None, True))
    assert bench.machine.running_redrives() == ["q"]
    bench.do(commands.RedriveStop("q"))
    assert bench.machine.running_redrives() == []
    ended = bench.machine.redrive("q")
    assert ended is not None
    assert ended.status == "cancelled"
