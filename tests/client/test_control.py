"""The control connection: renewals name what is held, whatever the user's loop is doing."""

from __future__ import annotations

import asyncio
import threading
import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

import fifo
from bench.loopback import free_ports
from fifo.client import Environment, from_url, limits
from fifo.client.connection.dialing import Dialer
from fifo.client.connection.threads import call_in
from fifo.client.consuming.lock_ledger import LockLedger
from fifo.wire import Code, Frame
from fifo.wire.messages import (
    VERB_RELEASE,
    Cancel,
    Close,
    Error,
    Get,
    Got,
    Hello,
    Message,
    Notice,
    NoticeAck,
    Receipt,
    Redirect,
    Renew,
    Renewed,
    Settle,
    Subscribe,
    Welcome,
)
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import Line, Peer, receive_all, renew_all, subscribe_as, until, welcome


class PeerThread:
    """A peer on a loop of its own, for tests that block theirs."""

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def __enter__(self) -> PeerThread:
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.loop is not None
        assert self._stop is not None
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with Peer() as self.peer:
            self._ready.set()
            await self._stop.wait()


async def test_a_renewal_names_exactly_what_is_held() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=1_000)
        async with consuming(peer, settles=False) as (client, messages):
            peer.line().deliver(11, 1, bodies(6), remaining_ms=1_000)
            one, two, three = await take(messages, 3)
            # Answered, so it is not ours any more; an unanswered one still is.
            peer.answers[Settle] = receive_all
            await one.ack(receipt=True)
            del peer.answers[Settle]
            await two.ack()
            await until(lambda: client.metrics.acked == 1)
            peer.heard.clear()
            _, _, renew = await peer.hear(Renew)
            _, _, renew = await peer.hear(Renew)
            assert renew.items == ((11, ((2, 6),)),)
            assert not renew.explicit
            await until(lambda: three.remaining > 20)
            assert messages.buffered == 3


async def test_a_renewal_comes_every_third_of_the_shortest_lock() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=900)
        async with consuming(peer) as (_, messages):
            peer.line().deliver(11, 1, bodies(1), remaining_ms=900)
            await take(messages, 1)
            loop = asyncio.get_running_loop()
            await peer.hear(Renew)
            began = loop.time()
            for _ in range(3):
                await peer.hear(Renew)
            assert 0.5 < loop.time() - began < 1.8


def test_a_handler_that_blocks_its_loop_keeps_its_lock() -> None:
    with PeerThread() as thread:
        peer = thread.peer
        assert peer is not None
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=600)
        peer.answers[Renew] = renew_all
        peer.answers[Settle] = receive_all
        peer.answers[Cancel] = peer.answers[Close]
        loop_of_peer = thread.loop
        assert loop_of_peer is not None

        async def program() -> int:
            async with (
                fifo.connect(peer.url, heartbeat=0.2) as client,
                client.consume("orders") as messages,
            ):
                line = peer.line()
                loop_of_peer.call_soon_threadsafe(
                    lambda: line.deliver(11, 1, bodies(2), remaining_ms=600)
                )
                message = await anext(messages)
                # Blocks the loop for three locks, as a handler that burns its CPU does.
                threading.Event().wait(1.8)
                renewals = peer.count(Renew)
                assert message.remaining > 20
                assert not message.lock_lost.is_set()
                await message.ack()
                return renewals

        assert asyncio.run(program()) >= 6


def test_a_handler_that_blocks_its_loop_can_see_that_its_lock_is_lost() -> None:
    with PeerThread() as thread:
        peer = thread.peer
        assert peer is not None
        assert thread.loop is not None
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=600)
        peer.answers[Settle] = receive_all
        peer.answers[Cancel] = peer.answers[Close]
        peer.answers[Renew] = lambda line, frame: line.send(
            Renewed(((11, (), ((1, 1),)),)), frame.correlation
        )

        async def program() -> bool:
            async with (
                fifo.connect(peer.url, close_timeout=0.5) as client,
                client.consume("orders") as messages,
            ):
                line = peer.line()
                assert thread.loop is not None
                thread.loop.call_soon_threadsafe(
                    lambda: line.deliver(11, 1, bodies(1), remaining_ms=600)
                )
                message = await anext(messages)
                return message.lock_lost.wait_blocking(3)

        assert asyncio.run(program())


async def test_a_program_whose_loop_was_closed_is_warned_before_its_messages_go_back() -> None:
    """Its process may end as soon as they are elsewhere, and the warning with it."""
    given_back = threading.Event()
    in_time: list[bool] = []

    def warned(text: Warning | str, *_: object) -> None:
        assert "event loop was closed" in str(text)
        in_time.append(not given_back.wait(0.2))  # what was sent before has time to arrive

    def close(line: Line, frame: Frame) -> None:
        given_back.set()
        line.close()

    closed = asyncio.new_event_loop()
    closed.close()
    async with Peer() as peer:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = warned  # type: ignore[assignment]  # takes all that comes
            async with consuming(peer) as (client, _):
                await until(lambda: len(peer.lines) == 2)
                peer.answers[Close] = close
                client._control._user_loop = closed
                client._control.nudge()
                await until(given_back.is_set)
                peer.answers[Close] = peer.answers[Cancel]
        assert in_time == [True]


async def test_a_renewal_that_is_refused_for_the_moment_is_tried_again_soon() -> None:
    async with Peer() as peer:
        peer.answers[Renew] = lambda line, frame: line.send(
            Error(Code.NOT_NOW, "no lease yet", retryable=True), frame.correlation
        )
        async with consuming(peer) as (_, messages):
            peer.line().deliver(11, 1, bodies(1))
            await take(messages, 1)
            loop = asyncio.get_running_loop()
            await peer.hear(Renew, 15)
            began = loop.time()
            for _ in range(3):
                await peer.hear(Renew)
            assert loop.time() - began < 2


async def test_a_renewal_that_crosses_the_end_of_its_session_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Peer() as peer:
        refused: list[Frame] = []

        def answer(line: Line, frame: Frame) -> None:
            if not peer.count(Close):
                renew_all(line, frame)
                return
            refused.append(frame)
            line.send(Error(Code.SESSION_ENDED, "the session is closing"), frame.correlation)

        peer.answers[Renew] = answer
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=300)
        async with consuming(peer) as (_, messages):
            peer.line().deliver(11, 1, bodies(1), remaining_ms=300)
            await take(messages, 1)
            peer.answers[Close] = lambda line, frame: None
        assert refused
    assert "refused" not in caplog.text


async def test_renewals_end_with_their_number_and_with_the_time_of_the_handler() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=300)
        async with consuming(peer, renewals=2) as (_, messages):
            _, _, subscribe = await peer.hear(Subscribe)
            assert subscribe.renewals is None, "the client renews, not the leader"
            peer.line().deliver(11, 1, bodies(1), remaining_ms=300)
            await take(messages, 1)
            # Two locks' time, of which three renewals take one; not two renewals.
            for _ in range(4):
                _, _, renew = await peer.hear(Renew)
                assert renew.items == ((11, ((1, 1),)),)
            peer.line().deliver(11, 2, bodies(1), remaining_ms=300)
            while renew.items != ((11, ((2, 2),)),):
                _, _, renew = await peer.hear(Renew)
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=300)
        async with consuming(peer, handler_timeout=0.25) as (_, messages):
            peer.line().deliver(11, 1, bodies(2))
            await take(messages, 1)

            async def only_the_unopened() -> None:
                while True:
                    _, _, renew = await peer.hear(Renew)
                    if renew.items == ((11, ((2, 2),)),):
                        return

            await asyncio.wait_for(only_the_unopened(), 5)


def test_renewals_are_counted_in_locks_from_the_delivery() -> None:
    arrival: Any = SimpleNamespace(first_token=1, count=1, received=102.0, remaining_s=8.0)
    ledger: LockLedger[Any] = LockLedger(
        11,
        "orders",
        cast("Any", None),
        lock_s=10,
        max_lock_s=1800,
        renewable=True,
        handle_key=b"",
    )
    ledger.renewed_for_s = 20.0  # two locks
    ledger.admit(arrival)
    # Handed out at 100, as its remaining time says: so it ends at 130 at the latest.
    assert ledger.to_renew(119.99) == ((1, 1),)
    assert ledger.to_renew(120.0) == ()
    ledger.resolve(((1, 1),))
    assert not ledger._since


async def test_what_the_leader_renews_is_handed_out_while_connected_and_never_renewed() -> None:
    now = 100.0
    environment = Environment(monotonic=lambda: now)
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=2_000, max_lock_ms=8_000)
        peer.answers[Settle] = receive_all
        peer.answers[Cancel] = peer.answers[Close]
        async with (
            fifo.connect(peer.url, environment=environment) as client,
            client.consume("orders", auto_renew=False, renewals=3) as messages,
        ):
            _, _, subscribe = await peer.hear(Subscribe)
            assert subscribe.renewals == 3
            peer.line().deliver(11, 1, bodies(3), remaining_ms=2_000)
            await take(messages, 1)
            now += 5.9  # one lock was certain, three more are the leader's
            [second] = await take(messages, 1)
            assert second.remaining == 0, "no deadline is later than the node's may be"
            now += 0.2  # less than one lock is left: it is for another consumer
            assert await messages.next(timeout=0.05) is None
            _, _, released = await peer.hear(Settle)
            assert (released.verb, released.tokens) == (VERB_RELEASE, ((3, 3),))
            assert peer.count(Renew) == 0


async def test_messages_of_a_get_are_renewed_only_on_request() -> None:
    async with Peer() as peer:
        peer.answers[Renew] = renew_all
        token = 0

        def get(line: Line, frame: Frame) -> None:
            nonlocal token
            token += 1
            line.deliver(21, token, bodies(1), remaining_ms=1_000)
            line.send(Got(21, token, 1), frame.correlation)

        peer.answers[Get] = get
        async with fifo.connect(peer.url, close_timeout=0.1) as client:
            await client.get("orders")
            await client.get("orders", auto_renew=True)
            _, _, renew = await peer.hear(Renew)
            assert renew.items == ((21, ((2, 2),)),)


async def test_an_explicit_renewal_gives_the_new_deadline_or_lock_lost() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.line().deliver(11, 1, bodies(2), remaining_ms=5_000)
        one, two = await take(messages, 2)
        before = one.deadline
        assert (await one.renew()) > before
        peer.answers[Renew] = lambda line, frame: line.send(
            Renewed(((11, (), ((2, 2),)),)), frame.correlation
        )
        with pytest.raises(fifo.LockLost):
            await two.renew()
        assert two.lock_lost.is_set()


async def test_the_control_connection_has_the_session_and_reconnects() -> None:
    hellos: list[Hello] = []

    def opening(line: Line, hello: Hello) -> Message:
        hellos.append(hello)
        return welcome(line, hello)

    async with Peer() as peer:
        peer.opening = opening
        async with consuming(peer):
            await until(lambda: len(hellos) == 2)
            assert [hello.role for hello in hellos] == [0, 1]
            assert hellos[0].session == hellos[1].session
            assert hellos[1].resume
            await until(lambda: any(line.hello and line.role == 1 for line in peer.lines))
            peer.line(1).send(Redirect(None, None, moved=True))
            await until(lambda: len(hellos) == 3)
            assert hellos[2].role == 1


async def test_no_control_connection_is_opened_for_a_client_that_only_publishes() -> None:
    async with Peer() as peer, fifo.connect(peer.url):
        await asyncio.sleep(0.05)
        assert [line.role for line in peer.lines] == [0]
        assert not any(thread.name == "fifo control" for thread in threading.enumerate())


async def test_the_control_thread_ends_with_its_client() -> None:
    async with Peer() as peer, consuming(peer):
        await until(lambda: any(line.hello and line.role == 1 for line in peer.lines))
    assert not any(thread.name == "fifo control" for thread in threading.enumerate())


class EndingLoop(asyncio.SelectorEventLoop):
    """Its thread ends it between somebody's look at it and his call."""

    def call_soon_threadsafe(  # type: ignore[override]  # whatever it is called with
        self, *arguments: Any, **more: Any
    ) -> asyncio.Handle:
        self.close()
        return super().call_soon_threadsafe(*arguments, **more)


async def test_a_control_thread_that_is_just_ending_can_be_stopped() -> None:
    """A client that was closed at that moment raised `Event loop is closed`."""
    async with Peer() as peer, consuming(peer) as (client, _):
        control = client._control
        await until(lambda: control.link is not None)
        real = control._loop
        assert real is not None
        control._loop = EndingLoop()
        control.nudge()
        control._loop = EndingLoop()
        real.call_soon_threadsafe(control._cancel)
        await control.stop()


def test_a_call_into_a_loop_that_lives_fails_as_it_does() -> None:
    def broken(*_: object) -> asyncio.Handle:
        raise RuntimeError("not because it has ended")

    loop = asyncio.new_event_loop()
    loop.call_soon_threadsafe = broken  # type: ignore[method-assign,assignment]  # on purpose
    with pytest.raises(RuntimeError, match="not because"):
        call_in(loop, print)
    loop.close()


async def test_activity_of_a_single_active_consumer_is_reported() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        told: list[bool] = []
        messages.on_activity = told.append
        assert messages.active
        peer.line().send(Notice(1, 1, 11, active=False))
        await until(lambda: told == [False])
        assert not messages.active


async def test_a_silent_node_is_given_up_after_two_heartbeats_and_found_again() -> None:
    async with Peer() as peer:
        peer.opening = lambda line, hello: Welcome(1, "n1", b"c", 1, heartbeat_ms=100)
        async with fifo.connect(peer.url, heartbeat=0.1) as client:
            loop = asyncio.get_running_loop()
            began = loop.time()
            peer.take = lambda line, frame: None  # type: ignore[method-assign]
            await until(lambda: client.metrics.disconnects == 1)
            assert 0.15 < loop.time() - began < 1.0
            await until(lambda: client.metrics.connects == 2)


async def test_a_quiet_connection_is_kept_by_heartbeats() -> None:
    async with Peer() as peer:
        peer.opening = lambda line, hello: Welcome(1, "n1", b"c", 1, heartbeat_ms=100)
        async with fifo.connect(peer.url, heartbeat=0.1) as client:
            await asyncio.sleep(0.6)
            assert client.metrics.disconnects == 0


async def test_a_node_that_owes_answers_and_hangs_is_left_before_its_heartbeats_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STALL_S", 0.1)
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.take = lambda line, frame: None  # type: ignore[method-assign]
        asking = asyncio.create_task(client.queues(timeout=3))
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until(lambda: client.metrics.disconnects == 1)
        assert loop.time() - began < 2
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_unexpected_receipts_and_frames_do_no_harm() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        line = peer.line()
        line.send(Receipt(99, ((1, 1, 0, False),)), 12345)
        line.send(Notice(3, 77, 11))
        line.send(Error(Code.INTERNAL, "whatever"), 54321)
        line.deliver(77, 1, bodies(1))
        line.deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        assert (await message.ack(receipt=True)).status == "ok"
        assert client.metrics.disconnects == 0


def has(peer: Peer, role: int) -> bool:
    return any(line.hello is not None and line.role == role for line in peer.lines)


@pytest.mark.parametrize("role", [0, 1])
async def test_one_acknowledgement_covers_all_notices_that_came(role: int) -> None:
    async with Peer() as peer, consuming(peer):
        await until(lambda: has(peer, 1))
        for number in range(1, 21):
            peer.line(role).send(Notice(number, 0, 11, ((99, 99),)))
        _, _, acknowledged = await peer.hear(NoticeAck)
        assert acknowledged.notice == 20
        peer.line(role).send(Notice(21, 0, 11, ((99, 99),)))
        _, _, acknowledged = await peer.hear(NoticeAck)
        assert acknowledged.notice == 21
        assert peer.count(NoticeAck) == 0


async def test_a_refused_acknowledgement_of_a_notice_does_not_end_the_connection() -> None:
    async with Peer() as peer, consuming(peer) as (client, _):
        peer.answers[NoticeAck] = lambda line, frame: line.send(
            Error(Code.INVALID_ARGUMENT, "no such notice"), frame.correlation
        )
        await until(lambda: has(peer, 1))
        for role in (0, 1):
            peer.line(role).send(Notice(5, 0, 11, ((99, 99),)))
            _, frame, _ = await peer.hear(NoticeAck)
            assert frame.correlation != 0
        # A notice without a number is only news, and not acknowledged.
        peer.line().send(Notice(0, 1, 11, active=True))
        assert await client.settle("orders", 11, 1) is not None
        assert peer.count(NoticeAck) == 0
        assert client.metrics.disconnects == 0
        assert has(peer, 1)


async def test_a_token_settled_just_before_a_renewal_is_no_suspicion() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        peer.answers[Renew] = lambda line, frame: line.send(
            Renewed(((11, (), ((1, 1),)),)), frame.correlation
        )
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        acking = asyncio.create_task(message.ack(receipt=True))
        line, frame, _ = await peer.hear(Settle)
        client._control.nudge()
        await peer.hear(Renew)
        await until(lambda: message.ledger.lost)
        receive_all(line, frame)
        assert (await acking).status == "ok"
        assert not message.ledger.suspected
        assert client.metrics.locks_lost == 0


async def test_the_control_connection_follows_the_data_connection_to_the_next_leader() -> None:
    async with Peer() as old, Peer() as new:

        def to_new(line: Line, hello: Hello) -> Message | None:
            # The old leader hangs: it takes connections and answers nothing.
            return None

        async with consuming(old) as (client, _):
            await until(lambda: has(old, 1))
            client._session.dialer.learn([("n2", new.address)])
            old.opening = to_new
            new.opening = partial(welcome, term=2)
            for kind, answer in old.answers.items():
                new.answers[kind] = answer
            old.line(0).drop()
            await until(lambda: client.address == new.address)
            await until(lambda: has(new, 1))


async def test_a_session_that_ended_is_ended_once_on_both_connections() -> None:
    async with Peer() as peer, consuming(peer) as (client, _):
        await until(lambda: has(peer, 1))
        old = client._session.identity.session

        def opening(line: Line, hello: Hello) -> Message:
            if hello.session == old:
                return Error(Code.SESSION_ENDED, "gone")
            return welcome(line, hello)

        peer.opening = opening
        for role in (1, 0):
            peer.line(role).drop()
        await until(lambda: client.metrics.connects == 2)
        await until(lambda: has(peer, 1))
        assert client.metrics.sessions_ended == 1


async def test_a_renewal_counts_from_when_it_was_sent() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=3_000)
        peer.answers[Renew] = lambda line, frame: None
        async with consuming(peer) as (client, messages):
            peer.line().deliver(11, 1, bodies(1), remaining_ms=1_000)
            [message] = await take(messages, 1)
            client._control.nudge()
            line, frame, _ = await peer.hear(Renew)
            # The answer is on its way for half a second: that much less is left of the lock.
            await asyncio.sleep(0.5)
            line.send(Renewed(((11, ((1, 1, 3_000),), ()),)), frame.correlation)
            await until(lambda: message.remaining > 1)
            assert message.remaining <= 2.5


async def test_attempts_are_reported_whenever_the_time_is_over() -> None:
    [port] = free_ports(1)
    dialer = Dialer(from_url(f"fifo://127.0.0.1:{port}"), Environment())
    dialing = asyncio.create_task(dialer.dial(lambda: Hello(1, 1, 0, b"s" * 16, b"i" * 16)))
    await until(lambda: "refused" in dialer.explain())
    # Also while the next round has only begun.
    for _ in range(300):
        await asyncio.sleep(0.001)
        assert "refused" in dialer.explain()
    dialing.cancel()
    await asyncio.gather(dialing, return_exceptions=True)
