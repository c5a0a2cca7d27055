"""The client without `await`: the same, from any number of threads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import fifo
from bench.loopback import free_ports
from fifo.blocking import BlockingClient, BlockingMessage
from fifo.wire import Frame
from fifo.wire.messages import (
    VERB_ACK,
    VERB_NACK,
    VERB_RELEASE,
    VERB_TERMINATE,
    Alive,
    Cancel,
    Close,
    Get,
    Got,
    Notice,
    Ok,
    Publish,
    QueueQuery,
    Renew,
    Settle,
    Subscribe,
)
from tests.client.test_control import PeerThread
from tests.support.wire_peer import Line, Peer, confirm_all, receive_all, renew_all, subscribe_as


@contextmanager
def answering() -> Iterator[PeerThread]:
    """A peer on a thread of its own that answers whatever a consumer asks."""
    with PeerThread() as running:
        peer = running.peer
        assert peer is not None
        peer.answers.update(
            {
                Publish: confirm_all,
                Settle: receive_all,
                Renew: renew_all,
                Subscribe: subscribe_as(11),
                Cancel: peer.answers[Close],
                Alive: peer.answers[Close],
            }
        )
        yield running


@pytest.fixture
def thread() -> Iterator[PeerThread]:
    with answering() as running:
        yield running


@pytest.fixture
def peer(thread: PeerThread) -> Peer:
    assert thread.peer is not None
    return thread.peer


@pytest.fixture
def client(peer: Peer) -> Iterator[BlockingClient]:
    with fifo.blocking.connect(peer.url, close_timeout=0.5) as connected:
        yield connected


def blocking_threads() -> set[threading.Thread]:
    """The threads of blocking clients; another test of the process may keep one."""
    return {one for one in threading.enumerate() if one.name == "fifo blocking"}


def deliver(thread: PeerThread, first: int, count: int, remaining_ms: int = 30_000) -> None:
    """Hand messages to consumer 11, on the peer's own thread."""
    assert thread.loop is not None
    peer = thread.peer
    assert peer is not None
    done = threading.Event()

    def send() -> None:
        bodies = [b"%d" % n for n in range(first, first + count)]
        peer.line().deliver(11, first, bodies, remaining_ms=remaining_ms)
        done.set()

    thread.loop.call_soon_threadsafe(send)
    assert done.wait(5)


def settled(peer: Peer, count: int) -> dict[int, int]:
    """Token to verb of what was settled, once there are so many."""
    stop = threading.Event()
    for _ in range(2000):
        found = {
            token: frame.message.verb
            for _, frame in list(peer.heard)
            if isinstance(frame.message, Settle)
            for first, last in frame.message.tokens
            for token in range(first, last + 1)
        }
        if len(found) >= count:
            break
        stop.wait(0.002)
    return found


def test_many_threads_publish_through_one_client(peer: Peer, client: BlockingClient) -> None:
    def publish(n: int) -> list[str]:
        return [client.publish("orders", b"%d" % n).id for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        ids = [one for some in pool.map(publish, range(8)) for one in some]
    assert len(set(ids)) == 160
    assert len(client.publish_many("orders", [b"x"] * 700)) == 700
    assert client.metrics.confirmed == 860


def test_many_threads_share_one_consumer_and_ack_without_waiting(
    thread: PeerThread, peer: Peer, client: BlockingClient
) -> None:
    seen: list[int] = []
    with client.consume("orders", prefetch=1000) as messages:

        def work() -> None:
            for message in messages:
                with message.process():
                    seen.append(message.token)

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        deliver(thread, 1, 500)
        assert settled(peer, 500) == dict.fromkeys(range(1, 501), VERB_ACK)
        messages.cancel()
        for worker in workers:
            worker.join(5)
            assert not worker.is_alive()
    assert sorted(seen) == list(range(1, 501))


def test_process_settles_by_how_the_block_ends(
    thread: PeerThread, peer: Peer, client: BlockingClient
) -> None:
    with client.consume("orders") as messages:
        deliver(thread, 1, 5)
        with next(messages).process():
            pass
        with next(messages).process():
            raise RuntimeError("boom")
        with next(messages).process():
            raise fifo.Terminal("hopeless")
        with pytest.raises(KeyboardInterrupt), next(messages).process():
            raise KeyboardInterrupt
        with pytest.raises(ValueError, match="once more"), next(messages).process(reraise=True):
            raise ValueError("once more")
        assert settled(peer, 5) == {
            1: VERB_ACK,
            2: VERB_NACK,
            3: VERB_TERMINATE,
            4: VERB_RELEASE,
            5: VERB_NACK,
        }


def test_a_backoff_that_fails_loses_no_nack(
    thread: PeerThread,
    peer: Peer,
    client: BlockingClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*_: object) -> float:
        raise ZeroDivisionError("no delay")

    with client.consume("orders", nack_backoff=fails) as messages:
        deliver(thread, 1, 2)
        assert next(messages).nack().status == "ok"
        with next(messages).process(on_error=fails):
            raise RuntimeError("boom")
        assert settled(peer, 2) == {1: VERB_NACK, 2: VERB_NACK}
    assert caplog.text.count("ZeroDivisionError: no delay") == 3


def test_every_verb_answers_and_renew_gives_a_deadline(
    thread: PeerThread, client: BlockingClient
) -> None:
    with client.consume("orders") as messages:
        deliver(thread, 1, 6)
        batch = messages.next_batch(10)
        assert [message.body for message in batch] == [b"%d" % n for n in range(1, 7)]
        one, two, three, four, five, six = batch
        assert one.renew() >= one.published_at
        assert one.ack(receipt=True).status == "ok"
        assert one.ack().status == "already_settled"
        assert two.nack(delay=1).status == "ok"
        assert three.release().status == "ok"
        assert four.terminate("no").status == "ok"
        assert messages.settle_many([five]) == [fifo.SettleResult(fifo.Status.OK)]
        assert client.settle_many([six])[0].status == "ok"
        messages.alive()
        assert messages.next(timeout=0.01) is None


def test_leaving_returns_fetched_but_unopened_messages(
    thread: PeerThread, peer: Peer, client: BlockingClient
) -> None:
    with client.consume("orders") as messages:
        deliver(thread, 1, 100)
        taken = next(messages)
        taken.ack()
    back = settled(peer, 64)
    cancelled = [
        frame.message for _, frame in list(peer.heard) if isinstance(frame.message, Cancel)
    ]
    unopened = {token for first, last in cancelled[0].unopened for token in range(first, last + 1)}
    assert back[1] == VERB_ACK
    assert {token for token, verb in back.items() if verb == VERB_RELEASE} | unopened == set(
        range(2, 101)
    )


def test_a_fetched_message_whose_lock_ended_is_given_back_and_not_handed_out(
    thread: PeerThread, peer: Peer, client: BlockingClient
) -> None:
    with client.consume("orders", auto_renew=False) as messages:
        deliver(thread, 1, 4, remaining_ms=200)
        first = messages.next()
        assert first is not None
        assert first.lock_lost.wait_blocking(5)
        assert messages.next(timeout=0.01) is None
        deliver(thread, 5, 1)
        assert [one.token for one in messages.next_batch(10)] == [5]
        assert settled(peer, 3) == dict.fromkeys((2, 3, 4), VERB_RELEASE)
        said = [one.message for _, one in list(peer.heard) if isinstance(one.message, Settle)]
        assert all(one.automatic for one in said), "the program said nothing"


def test_callbacks_report_connections_and_activity(
    thread: PeerThread, peer: Peer, client: BlockingClient
) -> None:
    assert thread.loop is not None
    reports: queue.Queue[tuple[str, object]] = queue.Queue()
    client.on_connected = lambda address: reports.put(("connected", address))
    client.on_disconnected = lambda error: reports.put(("lost", type(error)))
    with client.consume("orders") as messages:
        messages.on_activity = lambda active: reports.put(("active", active))
        thread.loop.call_soon_threadsafe(lambda: peer.line().send(Notice(1, 1, 11, active=False)))
        assert reports.get(timeout=5) == ("active", False)
        assert not messages.active
        thread.loop.call_soon_threadsafe(lambda: peer.line().drop())
        assert reports.get(timeout=5) == ("lost", fifo.ConnectionLost)
        assert reports.get(timeout=5) == ("connected", peer.address)
        assert not messages.cancelled
    assert messages.cancelled


def test_the_other_calls_are_the_same(peer: Peer, client: BlockingClient) -> None:
    def ok(result: object) -> object:
        return lambda line, frame: line.send(Ok(result), frame.correlation)

    peer.answers[QueueQuery] = ok([{"name": "orders"}])  # type: ignore[assignment]
    assert [queue.name for queue in client.queues()] == ["orders"]
    assert [lock.as_dict() for lock in client.locks("orders")] == [{"name": "orders"}]

    def get(line: Line, frame: Frame) -> None:
        line.deliver(21, 1, [b"got"])
        line.send(Got(21, 1, 1), frame.correlation)

    peer.answers[Get] = get
    [message] = client.get("orders")
    assert isinstance(message, BlockingMessage)
    assert message.ack(receipt=True).status == "ok"
    assert client.settle("orders", 99, 1, "release").status == "ok"


def test_a_closed_client_says_so_and_its_thread_is_gone(peer: Peer) -> None:
    before = blocking_threads()
    client = fifo.blocking.connect(peer.url)
    client.close()
    client.close()
    with pytest.raises(fifo.ClientClosed):
        client.publish("orders", b"x")
    assert blocking_threads() <= before


def test_a_dead_cluster_is_reported_and_leaves_no_thread() -> None:
    before = blocking_threads()
    [port] = free_ports(1)
    with pytest.raises(fifo.ConnectionLost, match=f"127.0.0.1:{port}"):
        fifo.blocking.connect(f"fifo://127.0.0.1:{port}", connect_timeout=0.3)
    assert blocking_threads() <= before


def test_a_callback_that_would_wait_for_its_own_thread_is_refused(
    thread: PeerThread, client: BlockingClient
) -> None:
    raised: list[BaseException] = []
    done = threading.Event()

    def callback() -> None:
        try:
            client.queues()
        except fifo.ClientClosed as error:
            raised.append(error)
        done.set()

    loop = client._portal._crossing.loop
    assert loop is not None
    loop.call_soon_threadsafe(callback)
    assert done.wait(5)
    assert len(raised) == 1


def test_an_interrupted_wait_shows_nothing_but_the_interruption(
    client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(timeout: object) -> bool:
        raise KeyboardInterrupt

    with client.consume("orders") as messages:
        monkeypatch.setattr(messages, "_fetch_more", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            next(iter(messages))
    assert caught.value.__context__ is None
