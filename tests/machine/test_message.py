"""Actions on one message that stories cannot show: what lies in the log, bounds, bad input."""

from fifo.machine import Machine, commands, limits, replies
from fifo.machine.commands import MessageAction
from fifo.machine.replies import Reply
from fifo.machine.snapshot import bodies
from fifo.words import bounds
from fifo.words.actions import Action
from fifo.words.codes import RefusalCode
from tests.support.machine import Area, Bench, place_of

ONE = (1, 1, 1)


def bench_with_one(**spec: object) -> Bench:
    """A machine with one message in queue `q`."""
    bench = Bench()
    bench.declare("q", **spec)
    session = bench.attach()
    bench.publish(session, "q", b"body")
    return bench


def resend(bench: Bench, area: Area, *parts: tuple[int, int]) -> Reply:
    """Resend the one message with these parts of the area."""
    place = place_of(bench.machine, "q", ONE)
    assert place is not None
    body, key, headers = parts
    command = MessageAction("q", int(Action.RESEND), ONE, *place, content=(body, key, headers))
    return bench.apply(command, area=area)[0]


def live_of(bench: Bench) -> list[int]:
    """The entries that a snapshot keeps."""
    view = bench.machine.freeze()
    found = [index for indexes in bodies.live(view) for index in indexes]
    view.release()
    return found


def test_an_edited_message_keeps_the_entry_of_the_edit_and_no_other() -> None:
    bench = bench_with_one()
    assert live_of(bench) == [bench.index]
    area = Area()
    parts = [(area.put(part), len(part)) for part in (b"edited", b"key", b"")]
    assert resend(bench, area, *parts) == replies.Done()
    assert live_of(bench) == [bench.index]
    run = bench.machine.peek("q", 1)[0]
    assert bench.areas[run.index][run.bodies_at : run.bodies_at + run.bodies_bytes] == b"edited"
    assert run.keys is not None
    assert run.headers is None


def content(bench: Bench) -> bytes:
    """The state in canonical bytes, without the hash of its history: a refusal is part of that."""
    machine = Machine.restore(bench.machine.snapshot())
    machine.state.running_hash = 0
    return machine.snapshot()


def test_an_edit_that_is_not_in_the_entry_or_too_large_changes_nothing() -> None:
    bench = bench_with_one()
    before = content(bench)
    short = Area()
    short.put(b"abc")
    for parts in (((0, 4), (0, 0), (0, 0)), ((0, 1), (3, 1), (0, 0)), ((0, 1), (0, 0), (9, 0))):
        reply = resend(bench, short, *parts)
        assert isinstance(reply, replies.Refused), parts
        assert reply.code == RefusalCode.INVALID, parts
    large = Area()
    large.put(bytes(bounds.BODY_BYTES_MAX + 1))
    for parts in (
        ((0, bounds.BODY_BYTES_MAX + 1), (0, 0), (0, 0)),
        ((0, 1), (0, bounds.KEY_BYTES_MAX + 1), (0, 0)),
        ((0, 1), (0, 0), (0, bounds.HEADERS_BYTES_MAX + 1)),
    ):
        reply = resend(bench, large, *parts)
        assert isinstance(reply, replies.Refused), parts
        assert reply.code == RefusalCode.TOO_LARGE, parts
    assert content(bench) == before


def test_a_message_of_a_limited_queue_is_resent_in_it_without_another_one_being_dropped() -> None:
    bench = bench_with_one(max_length=2, max_bytes=8, overflow="drop_oldest")
    bench.publish(1, "q", b"next")
    area = Area()
    parts = [(area.put(part), len(part)) for part in (b"BODY", b"", b"")]
    assert resend(bench, area, *parts) == replies.Done()
    assert [run.number for run in bench.machine.peek("q", 9)] == [2, 1]
    assert bench.overview("q")["counters"]["overflow_dropped"] == 0


def test_the_history_of_a_message_that_is_taken_back_again_and_again_is_bounded() -> None:
    bench = bench_with_one()
    bench.declare("r")
    for turn in range(limits.HISTORY + 4):
        source, target = ("q", "r") if turn % 2 == 0 else ("r", "q")
        bench.do(commands.Get(1, source))
        place = place_of(bench.machine, source, ONE)
        assert place is not None
        action = MessageAction(source, int(Action.MOVE), ONE, *place, target=target)
        assert bench.do(action) == replies.Done()
    (record,) = bench.machine.state.queues[1].records.values()
    assert len(record.history) == limits.HISTORY
