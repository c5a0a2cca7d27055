"""Proves that a client finds the leader, and reports its attempts where there is none."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fifo
from bench.loopback import free_ports
from fifo.client import from_keywords, from_url, limits, redacted
from fifo.client.connection.link import coalesced
from fifo.client.errors import FifoError
from fifo.wire import Code, Frame
from fifo.wire.messages import (
    Authenticate,
    Challenge,
    Close,
    Error,
    Hello,
    Message,
    Ok,
    QueueQuery,
    Redirect,
)
from tests.support.wire_peer import Line, Peer, until, welcome


def redirect_to(address: str | None, retry_ms: int = 0) -> object:
    def opening(line: Line, hello: Hello) -> Message:
        return Redirect("n2" if address else None, address, retry_ms)

    return opening


async def test_a_client_follows_a_redirect_to_a_node_that_its_url_does_not_name() -> None:
    async with Peer() as follower, Peer() as leader:
        follower.opening = redirect_to(leader.address)  # type: ignore[assignment]
        async with fifo.connect(follower.url) as client:
            assert client.address == leader.address


async def test_connect_can_be_awaited_and_the_client_closed_by_hand() -> None:
    async with Peer() as peer:
        client = await fifo.connect(peer.url)
        assert client.connected
        await client.close()
        assert not client.connected
        with pytest.raises(fifo.ClientClosed, match="closed"):
            await client.publish("orders", b"x")


async def test_a_node_without_a_leader_is_asked_again_after_the_time_that_it_names() -> None:
    asked: list[float] = []

    def opening(line: Line, hello: Hello) -> Message:
        asked.append(asyncio.get_running_loop().time())
        return Redirect(None, None, 300) if len(asked) == 1 else welcome(line, hello)

    async with Peer() as peer:
        peer.opening = opening
        async with fifo.connect(peer.url):
            assert len(asked) == 2
            assert asked[1] - asked[0] >= 0.3


async def test_dead_and_silent_nodes_do_not_hold_up_the_way_to_the_leader() -> None:
    async with Peer() as silent, Peer() as leader:
        silent.opening = lambda line, hello: None
        [dead] = free_ports(1)
        began = asyncio.get_running_loop().time()
        url = f"fifo://127.0.0.1:{dead},{silent.address},{leader.address}"
        async with fifo.connect(url) as client:
            assert client.address == leader.address
            assert asyncio.get_running_loop().time() - began < 1.0


async def test_a_dead_cluster_is_reported_in_bounded_time_with_the_addresses_tried() -> None:
    one, other = free_ports(2)
    began = asyncio.get_running_loop().time()
    with pytest.raises(fifo.ConnectionLost) as caught:
        await fifo.connect(f"fifo://127.0.0.1:{one},127.0.0.1:{other}", connect_timeout=0.5)
    assert asyncio.get_running_loop().time() - began < 2.0
    assert f"127.0.0.1:{one} (refused)" in str(caught.value)
    assert f"127.0.0.1:{other} (refused)" in str(caught.value)
    assert isinstance(caught.value, ConnectionError)


async def test_a_host_that_is_not_found_is_named_without_a_number() -> None:
    url = "fifo://no-such-host.invalid:7101"
    words = r"invalid:7101 \(the host is not found: \w"
    with pytest.raises(fifo.ConnectionLost, match=words) as caught:
        await fifo.connect(url, connect_timeout=3)
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            Error(Code.AUTHENTICATION_FAILED, "no such user"),
            fifo.AuthenticationFailed,
            "no such user",
        ),
        (Challenge("scram-sha-256"), fifo.AuthenticationFailed, "scram-sha-256"),
        (Error(Code.UNSUPPORTED_VERSION, "speaks 2 to 3"), fifo.Unsupported, "speaks 2"),
        (Error(Code.SESSION_TAKEN, "somebody else"), fifo.SessionTaken, "somebody else"),
    ],
)
async def test_a_refusal_that_every_node_would_give_is_raised_at_once(
    answer: Message, error: type[FifoError], words: str
) -> None:
    async with Peer() as peer:
        peer.opening = lambda line, hello: answer
        began = asyncio.get_running_loop().time()
        with pytest.raises(error, match=words):
            await fifo.connect(peer.url, connect_timeout=5)
        assert asyncio.get_running_loop().time() - began < 2.0


async def test_a_secret_is_sent_where_it_is_asked_for_once_and_never_shown() -> None:
    async with Peer() as peer:
        said: list[Hello] = []

        def opening(line: Line, hello: Hello) -> Message:
            said.append(hello)
            return Challenge("password")

        peer.opening = opening
        url = f"fifo://ann:s3cret@{peer.address}?name=billing"
        connecting = asyncio.ensure_future(_connected(url))
        line, _, proof = await peer.hear(Authenticate)
        assert proof == Authenticate("password", b"s3cret")
        line.send(Challenge("password"))
        with pytest.raises(fifo.AuthenticationFailed, match="did not offer"):
            await connecting
        assert (said[0].user, said[0].mechanism, said[0].client) == ("ann", "password", "billing")
        assert "s3cret" not in repr(said[0].to_fields())


async def _connected(url: str) -> None:
    async with fifo.connect(url, connect_timeout=5):
        pass


async def test_a_secret_is_not_given_to_a_node_that_asks_unasked() -> None:
    async with Peer() as peer:
        peer.opening = lambda line, hello: Challenge("password")
        with pytest.raises(fifo.AuthenticationFailed, match="did not offer"):
            await fifo.connect(peer.url + "?token=s3cret")
        assert peer.count(Authenticate) == 0


async def test_a_ca_that_cannot_be_read_is_named() -> None:
    with pytest.raises(fifo.InvalidArgument, match=r"ca: /nowhere/ca\.pem cannot be used: No"):
        await fifo.connect("fifos://127.0.0.1:7101?ca=/nowhere/ca.pem")


@pytest.mark.parametrize(
    "url",
    [
        "fifo://ann:s3cret@h:1",
        "fifo://h:1?user=ann&password=s3cret",
        "fifos://h:1?token=s3cret",
    ],
)
def test_secrets_are_in_no_text_of_options_and_urls(url: str) -> None:
    options = from_url(url)
    assert "s3cret" not in repr(options) + options.shown + redacted(url)
    assert asyncio.run(options.proof())[1] == b"s3cret"


@pytest.mark.parametrize(
    "url",
    [
        "fifo://ann:s3/cret@h:1",
        "fifo://ann:s3?cret@h:1",
        "fifo://ann:s3#cret@h:1",
        "fifo://ann:s3cret@h:1/x",
        "fifo://ann:s3cret@h",
        "fifo://ann:s3cret@h:1?timeout=never",
        "fifo://ann:s3cret@h:1?token=s3cret",
        "fifo://:s3cret@h:1",
    ],
)
def test_no_error_about_a_url_shows_a_part_of_its_secret(url: str) -> None:
    with pytest.raises(fifo.InvalidArgument) as caught:
        from_url(url)
    assert "s3" not in str(caught.value)
    assert "cret" not in str(caught.value).replace("secret", "")


async def test_a_port_with_another_protocol_is_named_with_its_answer() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 4)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(fifo.ConnectionLost, match=r"sent an HTTP answer: .*client port"):
            await fifo.connect(f"fifo://127.0.0.1:{port}", connect_timeout=0.5)
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("fifo://127.0.0.1:7101?ca=ca.pem", "fifos://"),
        ("fifo://ann@127.0.0.1:7101", "belong together"),
        ("amqp://127.0.0.1:7101", "fifo://"),
        ("127.0.0.1:7101", "fifo://"),
        ("fifo://127.0.0.1", "host:port"),
        ("fifo://127.0.0.1:70000", "65535"),
        ("fifo://127.0.0.1:0", "65535"),
        ("fifo://", "host:port"),
        ("fifo://h:1/orders", "orders"),
        ("fifo://h:1?timeut=5", "timeut"),
        ("fifo://h:1?timeout=soon", "timeout"),
        ("fifo://h:1?timeout=-1", "timeout"),
        ("fifo://h:1?heartbeat=0.001", "heartbeat"),
        ("fifo://h:1?auto_retry_acks=maybe", "auto_retry_acks"),
        ("fifo://h:1?max_ack_retries=x", "max_ack_retries"),
        ("fifo://h:1?reconnect=sometimes", "backoff"),
        ("fifo://" + "h" * 5000 + ":1", "url"),
    ],
)
def test_a_bad_url_is_refused_before_anything_is_opened(url: str, words: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=words):
        fifo.connect(url)


def test_options_come_from_the_query_and_keywords_win() -> None:
    options = from_url(
        "fifo://u:p%40ss@h1:7101,h2:7111,[::1]:7121?timeout=500ms&close_timeout=2"
        "&auto_retry_acks=no&reconnect=exponential:100ms..10s*2",
        from_keywords({"close_timeout": 3}),
    )
    assert options.addresses == ("h1:7101", "h2:7111", "[::1]:7121")
    assert (options.user, options.password) == ("u", "p@ss")
    assert options.timeout == 0.5
    assert options.close_timeout == 3
    assert options.auto_retry_acks is False
    assert options.reconnect == fifo.Exponential(0.1, 10)


async def test_frames_cut_anywhere_are_put_together() -> None:
    async with Peer() as peer:

        async def answer_in_pieces() -> None:
            line, frame, _ = await peer.hear(QueueQuery)
            from fifo.wire import encode

            for byte in b"".join(encode(Ok([{"name": "a"}]), frame.correlation)):
                line.send_bytes(bytes([byte]))
                await asyncio.sleep(0)

        async with fifo.connect(peer.url) as client:
            answering = asyncio.create_task(answer_in_pieces())
            assert [queue.name for queue in await client.queues()] == ["a"]
            await answering


async def test_a_client_reconnects_with_the_same_session() -> None:
    hellos: list[Hello] = []

    def opening(line: Line, hello: Hello) -> Message:
        hellos.append(hello)
        return welcome(line, hello)

    async with Peer() as peer:
        peer.opening = opening
        events: list[str] = []
        async with fifo.connect(peer.url) as client:
            client.on_connected = lambda address: events.append("connected")
            client.on_disconnected = lambda error: events.append("disconnected")
            peer.line().drop()
            await until(lambda: events == ["disconnected", "connected"])
        assert [hello.resume for hello in hellos] == [False, True]
        assert hellos[0].session == hellos[1].session
        assert hellos[0].incarnation == hellos[1].incarnation


async def test_a_connection_that_was_lost_before_it_was_reported_is_not_reported_lost() -> None:
    def opening(line: Line, hello: Hello) -> Message | None:
        hellos.append(hello)
        if len(hellos) != 2:
            return welcome(line, hello)
        line.send(welcome(line, hello))
        line.drop()
        return None

    hellos: list[Hello] = []
    async with Peer() as peer:
        peer.opening = opening
        events: list[str] = []
        async with fifo.connect(peer.url) as client:
            client.on_connected = lambda address: events.append("connected")
            client.on_disconnected = lambda error: events.append("disconnected")
            peer.line().drop()
            await until(lambda: "connected" in events)
        assert len(hellos) == 3
        assert events == ["disconnected", "connected"]


async def test_callbacks_that_raise_keep_no_client_from_a_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def opening(line: Line, hello: Hello) -> Message:
        hellos.append(hello)
        return welcome(line, hello)

    def refuse(_: object) -> None:
        raise ValueError("a bug of the program")

    hellos: list[Hello] = []
    async with Peer() as peer:
        peer.opening = opening
        async with fifo.connect(peer.url) as client:
            client.on_connected = client.on_disconnected = refuse
            for count in (2, 3):
                peer.line().drop()
                await until(lambda: client.connected and len(hellos) == count)  # noqa: B023 # awaited
    found = [record.getMessage() for record in caplog.records if record.exc_info]
    assert found == ["on_disconnected failed", "on_connected failed"] * 2


async def test_a_moved_leader_is_found_where_the_redirect_says() -> None:
    async with Peer() as old, Peer() as new, fifo.connect(old.url) as client:
        old.opening = redirect_to(new.address)  # type: ignore[assignment]
        old.line().send(Redirect("n2", new.address, moved=True))
        await until(lambda: client.address == new.address)


async def test_a_request_is_sent_again_after_a_reconnection_and_one_that_may_not_is_unknown() -> (
    None
):
    async with Peer() as peer, fifo.connect(peer.url) as client:
        asking = asyncio.create_task(client.queues())
        purging = asyncio.create_task(client.purge("orders"))
        line, _, _ = await peer.hear(QueueQuery)
        line.drop()
        with pytest.raises(fifo.ConnectionLost) as caught:
            await purging
        assert caught.value.unknown
        line, frame, _ = await peer.hear(QueueQuery)
        line.send(Ok([]), frame.correlation)
        assert await asking == []


async def test_every_call_ends_by_its_timeout_and_says_whether_it_may_have_happened() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        with pytest.raises(fifo.Timeout, match="queue query: no answer within") as caught:
            await client.queues(timeout=timedelta(milliseconds=50))
        assert caught.value.unknown
        assert isinstance(caught.value, TimeoutError)
        await peer.stop()
        await until(lambda: not client.connected)
        with pytest.raises(fifo.ConnectionLost, match=peer.address) as lost:
            await client.queues(timeout=0.1)
        assert not lost.value.unknown


@pytest.mark.parametrize("timeout", ["3s", float("nan"), True])
async def test_a_timeout_that_is_none_is_refused_before_anything_is_sent(timeout: Any) -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        for call in (client.queues(timeout=timeout), client.publish("q", b"", timeout=timeout)):
            with pytest.raises(fifo.InvalidArgument, match="timeout: must be"):
                await call
        assert peer.count(QueueQuery) == 0


async def test_a_client_refuses_another_event_loop_and_goes_on_in_its_own() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:

        async def elsewhere() -> None:
            for call in (client.queues(), client.publish("q", b"")):
                with pytest.raises(fifo.ClientClosed, match=r"another event loop.*fifo\.blocking"):
                    await call

        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        asking = asyncio.create_task(client.queues())
        line, frame, _ = await peer.hear(QueueQuery)
        line.send(Ok([]), frame.correlation)
        assert await asking == []


async def test_a_refused_request_that_may_succeed_later_is_tried_again() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        asking = asyncio.create_task(client.queues())
        line, frame, _ = await peer.hear(QueueQuery)
        line.send(Error(Code.OVERLOADED, "busy", retryable=True), frame.correlation)
        line, frame, _ = await peer.hear(QueueQuery)
        line.send(Ok([]), frame.correlation)
        assert await asking == []


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.QUEUE_NOT_FOUND, fifo.QueueNotFound),
        (Code.QUEUE_EXISTS, fifo.QueueExists),
        (Code.IN_USE, fifo.QueueInUse),
        (Code.LIMIT, fifo.LimitReached),
        (Code.PERMISSION_DENIED, fifo.PermissionDenied),
        (Code.UNSUPPORTED, fifo.Unsupported),
        ("a code of the future", fifo.FifoError),
    ],
)
async def test_each_code_has_its_error_with_text_and_detail(
    code: str, error: type[FifoError]
) -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[QueueQuery] = lambda line, frame: line.send(
            Error(code, "because", detail={"difference": {"lock_ms": [1, 2]}}), frame.correlation
        )
        with pytest.raises(error, match="because") as caught:
            await client.queue("orders")
        assert caught.value.code == code
        if isinstance(caught.value, fifo.QueueExists):
            assert caught.value.difference == {"lock_ms": (1, 2)}


async def test_a_session_that_was_taken_is_not_taken_back() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.line().send(Error(Code.SESSION_TAKEN, "another process has it"))
        await until(lambda: not client.connected)
        with pytest.raises(fifo.SessionTaken, match="another process"):
            await client.queues()
        assert not peer.lines


async def test_calls_in_flight_when_the_session_was_taken_are_unknown() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[QueueQuery] = lambda line, _: line.send(Error(Code.SESSION_TAKEN, "another"))
        with pytest.raises(fifo.SessionTaken) as sent:
            await client.queues()
        with pytest.raises(fifo.SessionTaken) as never_sent:
            await client.queues()
        assert (sent.value.unknown, never_sent.value.unknown) == (True, False)


def test_a_client_works_on_uvloop_whose_transports_are_not_asyncios() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed here")

    async def connect() -> bool:
        async with Peer() as peer, fifo.connect(peer.url) as client:
            return client.connected

    assert uvloop.run(connect())


@given(st.lists(st.integers(0, 40_000), max_size=30))
def test_writes_join_small_buffers_and_leave_large_ones(sizes: list[int]) -> None:
    parts = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    pieces = list(coalesced(parts))
    assert b"".join(pieces) == b"".join(parts)
    small = [piece for piece in pieces if not any(piece is part for part in parts)]
    assert all(len(piece) <= limits.WRITE_BYTES + limits.JOIN_BYTES_MAX for piece in small)


async def test_a_closed_session_is_no_lost_connection() -> None:
    async with Peer() as peer:
        lost: list[fifo.FifoError] = []

        def close(line: Line, frame: Frame) -> None:
            peer_ok(line, frame)
            line.close()

        peer_ok = peer.answers[Close]
        peer.answers[Close] = close
        async with fifo.connect(peer.url) as client:
            client.on_disconnected = lost.append
        assert lost == []
        assert client.metrics.disconnects == 0
