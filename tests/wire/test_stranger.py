"""The client written from the page alone, against a scripted node that uses `fifo.wire`."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from fifo.wire import Code, Frame, Opening, encode
from fifo.wire.columns import (
    KEY_LENGTHS,
    PUBLISH_TAGS,
    Publication,
    check_publish,
    lay_out,
    pack_publication,
)
from fifo.wire.handshake import FROM_CLIENT
from fifo.wire.messages import (
    Close,
    Confirms,
    Declare,
    Deliver,
    Error,
    Hello,
    Message,
    Ok,
    Ping,
    Pong,
    Publish,
    Receipt,
    Redirect,
    Settle,
    Subscribe,
    Subscribed,
    Welcome,
)
from tests.wire import stranger
from tests.wire.stranger import Received, Refused, Stranger

BODIES = [b"one", b"", b"three"]
KEYS = [b"a", b"b", b""]


class ScriptedNode:
    """The other end of a socket: reads with `fifo.wire` and answers by a test's script."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.opening = Opening(awaits=FROM_CLIENT)
        self.frames: list[Frame] = []
        self.failure: BaseException | None = None

    def expect(self, kind: type[Message]) -> Frame:
        while not self.frames:
            data = self.socket.recv(65_536)
            assert data, "the client closed the connection"
            frames = self.opening.receive_data(data)
            self.frames += [frame for frame in frames if isinstance(frame, Frame)]
            assert len(self.frames) == len(frames), frames
        frame = self.frames.pop(0)
        assert isinstance(frame.message, kind), frame
        return frame

    def say(self, message: Message, correlation: int = 0, raw: bytes = b"") -> None:
        self.socket.sendall(b"".join(encode(message, correlation, [raw])))

    def welcome(self) -> None:
        assert self.expect(Hello).correlation == 0
        self.opening.opened()
        self.say(Welcome(1, "n1", b"cluster", 7))

    def play(self, script: Callable[["ScriptedNode"], None]) -> None:
        try:
            script(self)
        except BaseException as failure:
            self.failure = failure
        finally:
            self.socket.close()


Play = Callable[[Callable[[ScriptedNode], None]], socket.socket]


@pytest.fixture
def play() -> Iterator[Play]:
    """Start a script on the other end of a new socket; re-raise its failure at teardown."""
    running: list[tuple[ScriptedNode, threading.Thread, socket.socket]] = []

    def start(script: Callable[[ScriptedNode], None]) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(10)
        theirs.settimeout(10)
        node = ScriptedNode(theirs)
        thread = threading.Thread(target=node.play, args=(script,))
        thread.start()
        running.append((node, thread, ours))
        return ours

    yield start
    for node, thread, ours in running:
        thread.join(10)
        ours.close()
        if node.failure is not None:
            raise node.failure


def test_a_stranger_publishes_consumes_and_settles_by_the_wire(play: Play) -> None:
    def script(node: ScriptedNode) -> None:
        node.welcome()
        declare = node.expect(Declare)
        assert declare.message == Declare("orders", {"lock_ms": 5_000})
        node.say(Ok({"created": True, "queue": 3}), declare.correlation)

        publish = node.expect(Publish)
        message = publish.message
        assert isinstance(message, Publish)
        assert (message.previous, message.number, message.count) == (0, 1, 3)
        layout = lay_out(message.columns, publish.raw, 3, PUBLISH_TAGS)
        check_publish(layout)
        assert layout.bodies() == BODIES
        assert layout.blobs(KEY_LENGTHS) == KEYS
        node.say(Ping(), 1)
        node.say(Confirms(((publish.correlation, 7, 12, 1, 2, None),)))
        assert node.expect(Pong).correlation == 1

        node.say(Subscribed(5, 5_000, 60_000, 10), node.expect(Subscribe).correlation)
        listed, parts = pack_publication(Publication(BODIES, keys=KEYS))
        runs = ((2, 7, 12, 1, 0), (1, 7, 12, 9, 0))
        node.say(Deliver(5, "orders", 17, 3, 5_000, listed, runs), 0, b"".join(parts))

        settle = node.expect(Settle)
        assert settle.message == Settle(5, 1, ((17, 17),), delay_ms=500, reason="busy")
        node.say(Receipt(5, ((17, 17, 0, False),)), settle.correlation)
        node.say(Ok(), node.expect(Close).correlation)

    client = Stranger(play(script))
    assert client.welcome[:4] == [1, "n1", b"cluster", 7]
    assert client.declare("orders", lock_ms=5_000)
    assert client.publish("orders", BODIES, KEYS) == ["7.12.1", "7.12.2", "7.12.3"]
    assert client.subscribe("orders", 10) == 5
    messages = [client.receive() for _ in BODIES]
    assert messages == [
        Received(5, 17, "7.12.1", b"one", b"a", 1),
        Received(5, 18, "7.12.2", b"", b"b", 1),
        Received(5, 19, "7.12.9", b"three", b"", 1),
    ]
    result = client.settle(messages[0], stranger.NACK, delay_ms=500, reason="busy")
    assert result == [17, 17, 0, False]
    client.close()


def test_a_stranger_sees_the_code_of_an_error(play: Play) -> None:
    def script(node: ScriptedNode) -> None:
        node.welcome()
        declare = node.expect(Declare)
        node.say(Error(Code.QUEUE_EXISTS, "it is there", detail={"a": 1}), declare.correlation)

    client = Stranger(play(script))
    with pytest.raises(Refused) as caught:
        client.declare("orders")
    assert caught.value.args == (8, "queue_exists", "it is there", False, {"a": 1})


def test_a_stranger_sees_the_target_of_a_redirect(play: Play) -> None:
    def script(node: ScriptedNode) -> None:
        node.expect(Hello)
        node.say(Redirect("n2", "127.0.0.1:7111", 250))

    connection = play(script)
    with pytest.raises(Refused) as caught:
        Stranger(connection)
    assert caught.value.args[:3] == (stranger.REDIRECT, "n2", "127.0.0.1:7111")
